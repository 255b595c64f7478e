"""A program that drains a ring again and again while another process changes its frames.

Log, queue and index lie between guards in memory that must not change. What was stored has to be
whole: a log of records that verify.py's checks accept, as many as the queue has entries. Prints how
many passes stored frames, and how many refused one; ends with an error, or a signal, otherwise.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import signal
import struct
import sys
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rocketray.kernels.consume_queue import read_entries
from rocketray.kernels.drain import FRAME_DATA, StoreCursor, drain_frames
from rocketray.kernels.measure import list_records
from rocketray.message import Message
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch

COUNT = 400  # records of a frame: reading its columns takes so long that a change is in the middle
FRAMES = 3
GUARD = 4096
LOG_BYTES, QUEUE_BYTES = 1 << 20, 20 * COUNT * FRAMES
SLOTS, ENTRIES = 64, COUNT * FRAMES + 1
INDEX_BYTES = 40 + 4 * SLOTS + 20 * ENTRIES
LOG_START = 1 << 20
MARK = 0xA5
EXTREMES = (0, 1, -1, 90, 91, 1 << 16, 2**31 - 1, -(2**31))
_FRAME = struct.Struct("=4Iq8x")
_Bytes = npt.NDArray[np.uint8]


def ring() -> tuple[_Bytes, list[list[int]]]:
    """A ring full of frames, in memory that a fork shares, and where in it numbers are, by kind."""
    messages = [Message("T", b"x" * 10, keys=[f"k{number}"]) for number in range(COUNT)]
    content = pack_batch(encode_messages(messages, born_host=("::1", 1), clock_ms=lambda: 1))
    size = (32 + len(content) + 31) // 32 * 32
    raw = b""
    kinds: list[list[int]] = [[], [], [], []]
    for sequence in range(1, FRAMES + 1):
        columns = len(raw) + 32 + 24
        parts = (
            range(len(raw), columns, 4),
            range(columns + 8 * COUNT, columns + 12 * COUNT, 4),  # sizes
            range(columns + 12 * COUNT, columns + 20 * COUNT, 4),  # hashes, numbers of records
            range(columns + 20 * COUNT, len(raw) + size, 4),
        )
        kinds = [[*kind, *part] for kind, part in zip(kinds, parts, strict=True)]
        header = _FRAME.pack(size, FRAME_DATA, 0, len(content), sequence)
        raw += (header + content).ljust(size, b"\0")
    shared = np.frombuffer(mmap.mmap(-1, len(raw)), np.uint8)
    shared[:] = np.frombuffer(raw, np.uint8)
    return shared, kinds


def change(data: _Bytes, kinds: list[list[int]], parent: int) -> None:
    """Change a number and change it back, for some passes each, as long as *parent* lives."""
    words, rng = data.view(np.int32), random.Random(os.getpid())
    while os.getppid() == parent:
        word = rng.choice(rng.choice(kinds)) // 4
        old, new = words[word], rng.choice(EXTREMES)
        for _ in range(rng.choice((1, 20_000))):  # 50 ns each, or more
            words[word] = new
            words[word] = old


def guarded(size: int) -> tuple[_Bytes, _Bytes]:
    """Memory of *size* zeros, and all of it with its guards."""
    whole = np.full(size + 2 * GUARD, MARK, np.uint8)
    inside = whole[GUARD:-GUARD]
    inside[:] = 0
    return inside, whole


def check_stored(log: _Bytes, queue: _Bytes, store: npt.NDArray[np.int64]) -> None:
    count, end = int(store[StoreCursor.MESSAGES]), int(store[StoreCursor.LOG_POSITION])
    offsets, queue_offsets = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    sizes, queue_ids, crcs = (np.empty(count + 1, np.int32) for _ in range(3))
    columns = offsets, sizes, queue_ids, queue_offsets, crcs
    assert list_records(log, LOG_START, 0, *columns) == count
    assert queue_offsets[:count].tolist() == list(range(count))
    assert int(sizes[:count].sum()) == end
    assert not log[end:].any()
    there, entry_sizes = np.empty(count, np.int64), np.empty(count, np.int32)
    codes, numbers = np.empty(count, np.int64), np.empty(count, np.int64)
    read_entries(queue, 0, count, 0, there, entry_sizes, codes, numbers, 0)
    assert there.tolist() == offsets[:count].tolist()
    assert entry_sizes.tolist() == sizes[:count].tolist()
    assert all(second > first for first, second in pairwise(there.tolist()))


def main(rounds: int) -> None:
    data, kinds = ring()
    parent = os.getpid()
    producer = os.fork()
    if not producer:
        change(data, kinds, parent)
        os._exit(0)
    line = np.array([7], np.int64)
    host = np.arange(8, dtype=np.uint8)
    stored = refused = 0
    done = itertools.count()
    while next(done) < rounds or not (stored and refused):
        (log, all_log), (queue, all_queue), (index, all_index) = map(
            guarded, (LOG_BYTES, QUEUE_BYTES, INDEX_BYTES)
        )
        store = np.zeros(len(StoreCursor), np.int64)
        store[StoreCursor.LOG_START] = LOG_START
        store[StoreCursor.LOG_END] = LOG_BYTES - 8
        store[StoreCursor.INDEX_ROOM] = ENTRIES - 1
        cursor = np.array([0, len(data), 0], np.int64)
        slots = np.zeros(6 * 16, np.int64)
        taken = drain_frames(
            *(data, slots, cursor, log, queue, index, store, host),
            *(SLOTS, ENTRIES, 0, 1_700_000_000_000, line.ctypes.data, 7, 0),
        )
        for whole in (all_log, all_queue, all_index):
            assert (whole[:GUARD] == MARK).all()
            assert (whole[-GUARD:] == MARK).all()
        check_stored(log, queue, store)
        stored += taken > 0
        refused += taken < FRAMES
    os.kill(producer, signal.SIGKILL)
    os.waitpid(producer, 0)
    print(stored, refused)  # noqa: T201 - its purpose


if __name__ == "__main__":
    main(int(sys.argv[1]))
