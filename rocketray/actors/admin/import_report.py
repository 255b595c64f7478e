"""What an import did, as counts that add up: ``read == imported + already_there + skipped``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ImportReport", "QueueImport"]


@dataclass(frozen=True, slots=True)
class QueueImport:
    """One queue, the same number in the source and in ours.

    ``first_queue_offset`` is the source's offset of its first message: ours is numbered from 0, so
    a source's offset less this is ours, as long as nothing was skipped. None without a message.
    """

    topic: str
    queue_id: int
    read: int
    imported: int
    already_there: int
    skipped: Mapping[str, int]
    first_queue_offset: int | None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """All of it. ``skipped`` counts by reason, those of the queues among them.

    ``retimed`` messages had a store time before that of the message ahead of them, and got that
    one: the clock of the source went back. Without ``is_complete`` it was stopped, and goes on
    where it was when it is run again.
    """

    queues: tuple[QueueImport, ...]
    read: int
    imported: int
    already_there: int
    skipped: Mapping[str, int]
    retimed: int
    is_complete: bool
