"""A store writes only where the file system has given blocks, and has few given until it grows."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.nodes.stores import FakeClock, kill

from rocketray.base.config import StoreConfig
from rocketray.kernels.drain import StoreCursor
from rocketray.message import Message
from rocketray.store.append_window import AppendWindow
from rocketray.store.files.file_system import FileSystem, OpenFile
from rocketray.store.message_store import MessageStore

CONFIG = StoreConfig(
    commit_log_segment_bytes=1 << 20,
    consume_queue_segment_entries=20_000,
    index_hash_slots=1000,
    index_entries=20_000,
    consume_queue_ext=True,
    consume_queue_ext_segment_bytes=1 << 19,
)


class Blocks(FileSystem):
    """The system's files; ``ends`` says up to where each was given blocks."""

    def __init__(self) -> None:
        self.ends: dict[Path, int] = {}

    def create(self, path: Path, size: int, allocated_size: int) -> None:
        super().create(path, size, allocated_size)
        self.ends[path] = allocated_size

    def rename(self, path: Path, new_path: Path) -> None:
        super().rename(path, new_path)
        self.ends[new_path] = self.ends.pop(path, 0)

    def open(self, path: Path, *, read_only: bool) -> OpenFile:
        return _File(self.ends, path, read_only=read_only)

    def check(self, directory: Path) -> int:
        """Check the files that a store maps; return how many bytes have blocks."""
        given = 0
        for path in directory.rglob("[0-9]" * 17 + "*"):
            content = np.fromfile(path, np.uint8)
            written = np.flatnonzero(content)
            assert not len(written) or written[-1] < self.ends[path], path
            given += self.ends[path]
        return given


class _File(OpenFile):
    def __init__(self, ends: dict[Path, int], path: Path, *, read_only: bool) -> None:
        super().__init__(path, read_only=read_only)
        self._ends = ends

    def allocate(self, start: int, size: int) -> None:
        super().allocate(start, size)
        assert start == 0, "a copy may have holes anywhere"
        self._ends[self._path] = max(size, self._ends.get(self._path, 0))


def check_window(blocks: Blocks, store: MessageStore, window: AppendWindow, _: int) -> int:
    """Check that a kernel is given no more than there is."""
    log_file, queue_file = store._log.files.file(store._log.max_offset), window.queue.segment()
    assert log_file is not None
    assert queue_file is not None
    assert window.cursor[StoreCursor.LOG_END] < blocks.ends[log_file.path]
    assert len(window.queue_entries) <= blocks.ends[queue_file.path]
    return 0


def put(store: MessageStore, number: int, body_bytes: int) -> None:
    body = b"x" * body_bytes
    keys = (f"key{number}",)
    store.put([Message("T", body, "tag", keys, {"n": str(at)}) for at in range(1 + number % 5)], 0)


@pytest.mark.parametrize("reopens", [False, True])
def test_no_byte_is_written_where_there_are_no_blocks(
    tmp_path: Path, seed: int, *, reopens: bool
) -> None:
    rng, blocks, clock = random.Random(seed), Blocks(), FakeClock()
    directory = tmp_path / "store"
    store = MessageStore(directory, CONFIG, clock_ms=clock, file_system=blocks)
    for number in range(60):
        put(store, number, rng.choice((10, 1000, 30_000, 200_000)))
        blocks.check(directory)
        store.append_through_window("T", 0, partial(check_window, blocks, store))
        if reopens and rng.random() < 0.2:
            if rng.random() < 0.5:
                kill(store)
            else:
                store.close()
            store = MessageStore(directory, CONFIG, clock_ms=clock, file_system=blocks)
            blocks.check(directory)
    assert len(store._log.files.starts) > 2
    store.close()


def test_a_queue_with_one_message_takes_little_space(tmp_path: Path) -> None:
    blocks = Blocks()
    with MessageStore(tmp_path, clock_ms=FakeClock(), file_system=blocks) as store:
        put(store, 0, 100)
        index_slots = StoreConfig().index_hash_slots * 4
        assert blocks.check(tmp_path) - index_slots < 256 * 1024
        sizes = {path.stat().st_size for path in tmp_path.rglob("[0-9]" * 17 + "*")}
        assert sizes == {64 << 20, 6_000_000, 40 + index_slots + 20_000_000}, "as RocketMQ's"
        for number in range(100):
            put(store, number, 100_000)
        log_end = store.reads.max_physical_offset
    [log] = tmp_path.glob("commitlog/*")
    assert log_end < blocks.ends[log] < 5 * log_end
