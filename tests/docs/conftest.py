"""The kit's own fixtures, as a user has them."""

from __future__ import annotations

from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]
