"""What a feed tells the tables of its app: which queues it reads, and which it reads no more."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

__all__ = ["NO_TABLES", "QueueTables"]


class QueueTables(Protocol):
    """What the tables of an app want to know of queues."""

    async def gain(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """*holder* may read these queues when this returns."""

    async def lose(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """*holder* reads these queues no more."""


class NoTables:
    """For a feed whose queue numbers have nothing to do with the app's tables."""

    async def gain(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """Nothing belongs to them."""

    async def lose(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """Nothing belonged to them."""


NO_TABLES = NoTables()
