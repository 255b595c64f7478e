"""Tails at the fetch service of a disk: one step of a tail, filtered here.

Nothing is kept from one step to the next, so nothing has to be found again when the service was
started again, and a tail that ends leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rocketray.broker.filtering.tail import TopicTail

from .tail_api import STEP_BYTES, SeenFrame, TailQuery, TailStep


class TailService:
    """The object behind ``TailApi``; any thread may call."""

    def __init__(self, data: Path) -> None:
        """Take the data directory of the disk with the queues."""
        self._data = data

    def step(self, query: TailQuery, queues: Sequence[int], room: int | None) -> TailStep:
        tail = TopicTail(
            self._data,
            *(query.topic, query.subscription, query.start),
            with_rejected=query.with_rejected,
            only=queues,
        )
        with closing(tail):
            blocks = tail.blocks(room, STEP_BYTES)
            positions = tail.positions
            frames = [
                SeenFrame.of(block, positions[block.reader.queue_id])
                for block in blocks
                if len(block.entries)
            ]
            return TailStep(frames, tail.counts, positions, tail.stored)
