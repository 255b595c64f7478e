"""The test kit: a node in one process, without Ray, with a clock that the test controls.

``Broker`` consists of the same parts as a node: shards, filter engine, groups, producers, members,
queries. An app takes it as its connection. ``rocketray.testing.fixtures`` has pytest fixtures for
it.
"""

from __future__ import annotations

from .broker import Broker
from .clock import Clock
from .member import Member

__all__ = ["Broker", "Clock", "Member"]
