from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketray.store.files.mapped_file_queue import MappedFileQueue, segment_name
from rocketray.store.files.written_sums import WrittenSums

SIZE = 4096


@pytest.fixture
def files(tmp_path: Path) -> Iterator[MappedFileQueue]:
    queue = MappedFileQueue(tmp_path / "queue", SIZE, read_only=False)
    for start in (0, SIZE, 2 * SIZE):
        queue.ensure(start, SIZE).write(0, bytes(range(256)) * (SIZE // 256))
    yield queue
    queue.close()


def expected(files: MappedFileQueue, end: int) -> dict[str, tuple[int, int]]:
    """The sums of all bytes below *end*, each computed at once."""
    found = {}
    for start in files.starts:
        content = files.read(start, SIZE)[: max(end - start, 0)]
        if content:
            found[segment_name(start)] = len(content), zlib.crc32(content)
    return found


def test_sums_are_extended_from_file_to_file(files: MappedFileQueue) -> None:
    sums = WrittenSums(files)
    assert sums.table() == {}
    for end in (0, 20, 20, 4000, SIZE, SIZE + 20, 2 * SIZE + 20, 3 * SIZE):
        sums.cover(end)
        assert sums.table() == expected(files, end)


def test_forgotten_files_have_no_sums(files: MappedFileQueue) -> None:
    sums = WrittenSums(files)
    sums.cover(3 * SIZE)
    files.forget_before(SIZE)
    files.remove_forgotten()
    assert [*sums.table()] == [segment_name(SIZE), segment_name(2 * SIZE)]
    sums.clear()
    assert sums.table() == {}


def test_a_restored_table_tells_what_changed_and_is_extended(files: MappedFileQueue) -> None:
    written = WrittenSums(files)
    written.cover(2 * SIZE + 20)
    table = written.table()
    files.ensure(2 * SIZE, SIZE).write(20, b"behind the end")
    restored = WrittenSums(files)
    assert restored.restore(table) == []
    assert restored.table() == table
    restored.cover(2 * SIZE + 60)
    assert restored.table() == expected(files, 2 * SIZE + 60)
    for start in (SIZE + SIZE - 1, 2 * SIZE + 19):
        file = files.ensure(start, SIZE)
        file.data[start - file.start] ^= 1
    again = WrittenSums(files)
    assert again.restore(table) == [segment_name(SIZE), segment_name(2 * SIZE)]
    assert [*again.table()] == [segment_name(0)]


@pytest.mark.parametrize("entry", [[], [20], [-1, 0], [SIZE + 1, 0], ["20", 0], 7, {"20": 0}, "x"])
def test_a_damaged_table_makes_its_file_changed(files: MappedFileQueue, entry: object) -> None:
    sums = WrittenSums(files)
    assert sums.restore({segment_name(SIZE): entry, "x": 1}) == [segment_name(SIZE)]
    assert sums.table() == {}
