"""Becoming a member of a group: a call that blocks, so a thread makes it.

A thread cannot be cancelled. A member that it makes when nobody waits for it any more would keep
its queues, and read none of them, for as long as the process lives; so it is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from rocketray.topology.connection import GroupConsumer

__all__ = ["join"]


async def join(make: Callable[[], GroupConsumer]) -> GroupConsumer:
    """The member that *make* makes in a thread; closed, where this is cancelled before it is there."""
    joining = _Joining(make)
    try:
        return await asyncio.to_thread(joining.run)
    except asyncio.CancelledError:
        await asyncio.to_thread(joining.leave)
        raise


class _Joining:
    """One member on its way; the loop and the thread each may be the last to look at it."""

    def __init__(self, make: Callable[[], GroupConsumer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._member: GroupConsumer | None = None
        self._is_unwanted = False

    def run(self) -> GroupConsumer:
        """In a thread: make the member."""
        member = self._make()
        with self._lock:
            self._member = member
            is_unwanted = self._is_unwanted
        if is_unwanted:
            member.close()
        return member

    def leave(self) -> None:
        """In another thread: close the member, now or when it is there."""
        with self._lock:
            self._is_unwanted = True
            member = self._member
        if member is not None:
            member.close()
