"""The interface from a feed to the tables of its app: which queues it gains and loses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

__all__ = ["NO_TABLES", "QueueTables"]


class QueueTables(Protocol):
    """The receiver of gained and lost queues, for an app's tables."""

    async def gain(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """Let *holder* read these queues once this returns."""

    async def lose(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """Record that *holder* no longer reads these queues."""


class NoTables:
    """For a feed whose queue numbers are unrelated to the app's tables."""

    async def gain(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """Do nothing: the queues have no parts of tables."""

    async def lose(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        """Do nothing: the queues had no parts of tables."""


NO_TABLES = NoTables()
