"""A node for tests: in this process, without Ray, with a clock that the test moves by hand.

``Broker`` has what a node has, made of the same parts: shards, filter engine, groups, producers,
members, queries. An app takes it as its connection. ``rocketray.testing.fixtures`` has pytest
fixtures of it.
"""

from __future__ import annotations

from .broker import Broker
from .clock import Clock
from .member import Member

__all__ = ["Broker", "Clock", "Member"]
