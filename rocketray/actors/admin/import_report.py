"""The result of an import. Its counts add up: ``read == imported + already_there + skipped``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ImportReport", "QueueImport"]


@dataclass(frozen=True, slots=True)
class QueueImport:
    """The result for one queue, which has the same number in the source and in the target.

    ``first_queue_offset`` is the source's offset of its first message, None without a message. The
    target is numbered from 0, so a source offset minus this is the target's offset, as long as
    nothing was skipped.
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
    """The result of an import. ``skipped`` counts by reason, and includes those of the queues.

    ``retimed`` messages had a store time before that of the preceding message, and were given that
    time: the source's clock was set back. If ``is_complete`` is false, the import was stopped, and
    resumes at that point when it is run again.
    """

    queues: tuple[QueueImport, ...]
    read: int
    imported: int
    already_there: int
    skipped: Mapping[str, int]
    retimed: int
    is_complete: bool
