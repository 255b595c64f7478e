"""The kernel that drains a ring does what its oracle does, on whole and on damaged frames."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import oracles.drain
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.records import u8

from rocketray.base.ack_mode import Durability
from rocketray.kernels.drain import (
    FRAME_DATA,
    FRAME_PAD,
    RingCursor,
    StoreCursor,
    drain_frames,
)
from rocketray.message import Message
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch

RING_BYTES = 4096
LOG_BYTES = 1500
QUEUE_BYTES = 10 * 20
INDEX_BYTES = 40 + 4 * 4 + 9 * 20

batches = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=3)


OWNER = 2**40 + 5


def payload(batch: list[tuple[int, int]], owner_epoch: int) -> bytes:
    """A packed batch: for each message the size of its body and how many keys it has."""
    messages = [
        Message("T", bytes(size), "tag", [f"k{i}" for i in range(keys)]) for size, keys in batch
    ]
    encoded = encode_messages(messages, born_host=("1.2.3.4", 5), clock_ms=lambda: 6)
    return pack_batch(replace(encoded, owner_epoch=owner_epoch))


def frame(kind: int, durability: int, sequence: int, content: bytes) -> bytes:
    size = (32 + len(content) + 31) // 32 * 32
    header = struct.pack("=4Iq8x", size, kind, durability, len(content), sequence)
    return (header + content).ljust(size, b"\0")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            batches,
            st.integers(0, len(Durability)),  # the last is no mode
            st.booleans(),
            st.sampled_from([0, 0, OWNER, OWNER, OWNER - 1, -1]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, RING_BYTES - 1), st.integers(0, 255)), max_size=2),
    st.integers(0, 7),
    st.integers(0, LOG_BYTES),
    st.tuples(st.booleans(), st.sampled_from([0, OWNER])),
)
def test_frames_are_drained_alike(
    frames: list[tuple[list[tuple[int, int]], int, bool, int]],
    damage: list[tuple[int, int]],
    met: int,
    log_position: int,
    writer: tuple[bool, int],
) -> None:
    is_fenced, owner_epoch = writer
    raw = bytearray()
    for sequence, (batch, durability, is_padded, owner) in enumerate(frames, 1):
        raw += frame(FRAME_PAD, 0, 0, bytes(32)) if is_padded else b""
        raw += frame(FRAME_DATA, durability, sequence, payload(batch, owner))
    head = min(len(raw), RING_BYTES)
    for at, value in damage:
        if at < len(raw):
            raw[at] = value
    slots = np.zeros(6 * 4, np.int64)
    if met:
        slots[met % 4 * 6] = met  # an earlier incarnation wrote the slot of that frame
    line = np.array([7], np.int64)
    store = np.zeros(len(StoreCursor), np.int64)
    store[StoreCursor.LOG_START] = 10_000
    store[StoreCursor.LOG_POSITION] = log_position
    store[StoreCursor.LOG_END] = LOG_BYTES - 8
    store[StoreCursor.INDEX_ROOM] = 8

    def arguments() -> list[Any]:
        return [
            u8(bytes(raw[:RING_BYTES]).ljust(RING_BYTES, b"\0")).copy(),
            slots.copy(),
            np.array([0, head, 0], np.int64),
            np.zeros(LOG_BYTES, np.uint8),
            np.zeros(QUEUE_BYTES, np.uint8),
            np.zeros(INDEX_BYTES, np.uint8),
            store.copy(),
            u8(bytes(range(8))),
            *(4, 9, 3, 1_700_000_000_000, line.ctypes.data, 8 if is_fenced else 7, owner_epoch),
        ]

    ours, theirs = arguments(), arguments()
    taken = drain_frames(*ours)
    assert oracles.drain.drain_frames(*theirs) == taken
    for mine, other in zip(ours[:8], theirs[:8], strict=True):
        np.testing.assert_array_equal(mine, other)
    assert taken == ours[6][StoreCursor.BATCHES] == ours[2][RingCursor.SEQUENCE]
    assert not (is_fenced and taken)
    if not damage:
        assert {owner for _, _, _, owner in frames[:taken]} <= {0, owner_epoch}
