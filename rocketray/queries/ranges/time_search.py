"""Finding a time in the files of a queue."""

from __future__ import annotations

from pathlib import Path

from rocketray.broker.fetching.read_plan import Bounds, QueueKey
from rocketray.broker.topics.queue_views import QueueView
from rocketray.store.reading.reader import QueueReader


def find_in_queue(store: Path, key: QueueKey, held: Bounds, time_ms: int) -> int | None:
    """Return the first message of a queue that was stored at *time_ms* or later, or None.

    Raises:
        OffsetOutOfRangeError: messages of *held* were deleted meanwhile.
    """
    with QueueReader(store, *key) as reader:
        view = QueueView(key[1], held.minimum, held.visible, reader, store)
        return first_in_view(view, held, time_ms)


def first_in_view(view: QueueView, held: Bounds, time_ms: int) -> int | None:
    """Return the first message of *held* that was stored at *time_ms* or later, or None."""
    found = view.first_stored_at(time_ms)
    return found if found < held.visible else None
