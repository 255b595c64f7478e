"""Class filters for tests, named by import path."""

from __future__ import annotations

from rocketray.message import StoredMessage


def fails_always(message: StoredMessage) -> bool:
    """Raise on every message."""
    raise RuntimeError(f"broken on purpose at {message.keys}")


def body_is_short(message: StoredMessage) -> bool:
    """True for bodies under 10 bytes."""
    return len(message.body) < 10
