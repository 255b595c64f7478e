"""The call of tails at the fetch service of a disk: one step of a tail, filtered here.

Nothing is kept from one step to the next, so nothing has to be found again when the service was
started again, and a tail that ends leaves nothing behind.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rocketray.broker.fetching.flight_server import FlightCalls
from rocketray.broker.filtering.tail import TopicTail

from .tail_wire import STEP_BYTES, TAIL, TailFetch, TailStep, packed


def tail_calls(data: Path) -> FlightCalls:
    """Return the call for the queues on the disk with that data directory."""
    return FlightCalls(actions={TAIL: partial(_answer, data)})


def _answer(data: Path, request: bytes) -> bytes:
    """Answer a step; the tail asks again if messages were deleted while they were packed."""
    wanted = TailFetch.from_json(request)
    tail = TopicTail(
        data,
        wanted.topic,
        wanted.subscription,
        wanted.start,
        with_rejected=wanted.with_rejected,
        only=wanted.queues,
    )
    try:
        blocks = tail.blocks(wanted.room, STEP_BYTES)
        return packed(TailStep(blocks, tail.counts, tail.positions, tail.stored))
    finally:
        tail.close()
