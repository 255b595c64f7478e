"""Joining a group: a blocking call, made in a thread.

A thread cannot be cancelled. If the caller is cancelled, the thread may still create a member. That
member would keep its queues, and read none of them, for as long as the process lives; so it is
closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from rocketray.actors.consumers.member import GroupConsumer

__all__ = ["join"]


async def join(make: Callable[[], GroupConsumer]) -> GroupConsumer:
    """Return the member that *make* creates in a thread; close it if the call is cancelled."""
    joining = _Joining(make)
    try:
        return await asyncio.to_thread(joining.run)
    except asyncio.CancelledError:
        await asyncio.to_thread(joining.leave)
        raise


class _Joining:
    """One member being created; either the loop or the thread may see it last."""

    def __init__(self, make: Callable[[], GroupConsumer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._member: GroupConsumer | None = None
        self._is_unwanted = False

    def run(self) -> GroupConsumer:
        """Create the member, in a thread."""
        member = self._make()
        with self._lock:
            self._member = member
            is_unwanted = self._is_unwanted
        if is_unwanted:
            member.close()
        return member

    def leave(self) -> None:
        """Close the member, now or as soon as it exists, in another thread."""
        with self._lock:
            self._is_unwanted = True
            member = self._member
        if member is not None:
            member.close()
