from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.harness.faults import largest_file

from rocketray.errors import CorruptRecordError, StoreError, StoreFullError
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.files.mapped_file import MappedFile, create_file
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Repair, segment_name

pytestmark = pytest.mark.proves("durability", "A foreign file with a far number is refused")

SIZE = 4096


@pytest.fixture
def files(tmp_path: Path) -> Iterator[MappedFileQueue]:
    queue = MappedFileQueue(tmp_path / "log", SIZE, read_only=False)
    yield queue
    queue.close()


def names(queue: MappedFileQueue) -> list[str]:
    return sorted(path.name for path in queue.directory.iterdir())


def test_files_are_named_by_their_first_offset_and_found_by_arithmetic(
    files: MappedFileQueue,
) -> None:
    assert (files.min_offset, files.end, files.starts, files.file(0)) == (0, 0, [], None)
    assert not files.directory.exists()  # an empty queue keeps no file
    files.ensure(0, SIZE).write(10, b"first")
    files.ensure(SIZE + 5, SIZE).write(5, b"second")
    assert names(files) == ["00000000000000000000", "00000000000000004096"]
    found = files.file(SIZE + 100)
    assert found is not None
    assert found.read(5, 6) == b"second"
    assert found.data[5] == ord("s")
    assert files.file(2 * SIZE) is None
    assert files.file(-1) is None
    assert files.end == 2 * SIZE


def test_what_was_written_is_there_when_opened_again(files: MappedFileQueue) -> None:
    files.ensure(0, SIZE).write(0, b"kept")
    files.flush(0, 4)
    again = MappedFileQueue(files.directory, SIZE, read_only=True)
    found = again.file(0)
    assert found is not None
    assert found.read(0, 4) == b"kept"
    with pytest.raises(ValueError, match="read-only"):
        found.data[0] = 1
    again.close()


def test_a_file_has_all_its_blocks_before_it_is_used(files: MappedFileQueue) -> None:
    path = files.ensure(0, SIZE).path
    assert path.stat().st_blocks * 512 >= SIZE


def test_the_next_file_is_prepared_when_the_present_one_is_half_full(
    files: MappedFileQueue,
) -> None:
    files.prepare_next(0)
    assert files.starts == []
    files.ensure(0, SIZE)
    files.prepare_next(SIZE // 2 - 1)
    assert files.starts == [0]
    for _ in range(3):
        files.prepare_next(SIZE // 2)
    assert files.starts == [0, SIZE]
    assert files.ensure(SIZE, SIZE) is files.file(SIZE)


def test_a_queue_may_begin_anywhere(files: MappedFileQueue) -> None:
    files.ensure(5 * SIZE + 1, SIZE)
    assert (files.min_offset, files.end) == (5 * SIZE, 6 * SIZE)
    again = MappedFileQueue(files.directory, SIZE, read_only=True)
    assert again.starts == [5 * SIZE]


def test_a_full_disk_leaves_nothing_behind(files: MappedFileQueue) -> None:
    files.ensure(0, SIZE)
    with largest_file(SIZE - 1), pytest.raises(StoreFullError, match="nothing was stored"):
        files.ensure(SIZE, SIZE)
    assert names(files) == [segment_name(0)]
    assert files.starts == [0]
    files.ensure(SIZE, SIZE)
    assert files.starts == [0, SIZE]


def test_a_file_that_was_half_made_is_removed(files: MappedFileQueue) -> None:
    files.ensure(0, SIZE)
    (files.directory / "00000000000000004096.tmp").touch()
    again = MappedFileQueue(files.directory, SIZE, read_only=False)
    assert names(again) == [segment_name(0)]


def test_cutting_keeps_aside_what_was_not_zero(files: MappedFileQueue) -> None:
    for start in (0, SIZE, 2 * SIZE):
        files.ensure(start, SIZE)
    files.ensure(0, SIZE).write(100, b"stays")
    files.ensure(0, SIZE).write(200, b"torn\0record")
    files.ensure(SIZE, SIZE).write(0, b"later")
    assert files.cut(200, keep=True) == 11 + 5
    assert files.starts == [0]
    broken = files.directory / "broken"
    assert (broken / f"{segment_name(0)}.broken-200").read_bytes() == b"torn\0record"
    assert (broken / f"{segment_name(SIZE)}.broken-{SIZE}").read_bytes() == b"later"
    first = files.ensure(0, SIZE)
    assert first.read(100, 5) == b"stays"
    assert not first.data[105:].any()
    assert files.cut(200, keep=True) == 0
    again = MappedFileQueue(files.directory, SIZE, read_only=True)
    assert again.starts == [0]


def test_wrong_sizes_and_missing_files_are_refused(files: MappedFileQueue) -> None:
    for start in (0, SIZE, 2 * SIZE):
        files.ensure(start, SIZE)
    with pytest.raises(CorruptRecordError, match="not a multiple of the file size 3000"):
        MappedFileQueue(files.directory, 3000, read_only=True)
    (files.directory / segment_name(SIZE)).unlink()
    with pytest.raises(CorruptRecordError, match="00000000000000004096 is missing"):
        MappedFileQueue(files.directory, SIZE, read_only=True)


def test_a_stray_file_far_behind_the_others_is_refused_and_nothing_is_made(
    files: MappedFileQueue,
) -> None:
    """Its name alone would have the disk filled with files in between."""
    files.ensure(0, SIZE)
    for start, reason in ((300 * SIZE, "299 files are missing"), (1 << 64, "or too large")):
        stray = files.directory / segment_name(start)
        stray.write_bytes(b"")
        for repair in Repair:
            with pytest.raises(CorruptRecordError, match=f"{reason}|is missing"):
                MappedFileQueue(files.directory, SIZE, read_only=False, repair=repair)
        stray.unlink()
    assert names(files) == [segment_name(0)]


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_file(SYSTEM_FILES, path, SIZE, SIZE)
    with pytest.raises(CorruptRecordError, match="has 4096 bytes where 5000 are expected"):
        MappedFile(path, 0, 5000, read_only=True)


def test_closing_is_safe_while_an_array_over_the_file_lives(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_file(SYSTEM_FILES, path, SIZE, SIZE)
    file = MappedFile(path, 0, SIZE, read_only=False)
    file.write(0, b"abc")
    view = file.data[:3]
    file.close()
    assert view.tobytes() == b"abc"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are listed on Linux")
@pytest.mark.parametrize("read_only", [False, True])
def test_a_mapped_file_holds_no_descriptor(tmp_path: Path, *, read_only: bool) -> None:
    path = tmp_path / "file"
    create_file(SYSTEM_FILES, path, SIZE, SIZE)

    def held() -> int:
        return sum(link.resolve() == path for link in Path("/proc/self/fd").iterdir())

    file = MappedFile(path, 0, SIZE, read_only=read_only)
    assert held() == 0
    if not read_only:
        file.reserve(SIZE, 0)
        file.write(0, b"abc")
        file.flush()
        assert 3 <= file.data_end() <= SIZE
    assert held() == 0
    file.close()
    file.close()
    assert path.read_bytes().startswith(bytes(3) if read_only else b"abc")


def test_populating_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_file(SYSTEM_FILES, path, 1 << 20, 1 << 20)
    file = MappedFile(path, 0, 1 << 20, read_only=False)
    file.write(5000, b"abc")
    file.populate()
    assert file.read(5000, 3) == b"abc"
    assert np.count_nonzero(file.data) == 3
    file.close()


def test_a_directory_where_a_file_is_to_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    with pytest.raises(StoreError, match="0 is a directory"):
        create_file(SYSTEM_FILES, tmp_path / "0", 4096, 4096)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
