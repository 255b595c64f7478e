"""Reading a store again: all damage in cold files is found, and none in a healthy store."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from support.nodes.stores import SMALL, FakeClock, message, open_golden
from support.sim.sim_disk import SimDisk

from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.store_settings import Salvage
from rocketray.store.formats.record import BLANK_BYTES, MAGIC_BLANK
from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.problem import Problem
from rocketray.store.recovery.scrub import PASS_INTERVAL_MS, Scrubber
from rocketray.store.recovery.scrub_progress import read_progress
from rocketray.store.retention import DiskUse, RetentionPolicy

pytestmark = pytest.mark.proves(
    "durability",
    "Damage in a complete log file of a running shard is found within one pass, and named "
    "until it is repaired",
)

STORE = Path("/store")
COLD = 4 * SMALL.commit_log_segment_bytes
FIRST, SECOND = (f"commitlog/{start:020d}" for start in (0, 4096))


def written(disk: FileSystem, directory: Path = STORE, messages: int = 90) -> MessageStore:
    """A store with two queues over several files, all of it flushed."""
    store = MessageStore(directory, SMALL, clock_ms=FakeClock(), file_system=disk)
    for number in range(messages):
        store.put([message(number)], number % 2)
    store.flush(everything=True)
    return store


def scrubber(disk: FileSystem, directory: Path = STORE, clock: FakeClock | None = None) -> Scrubber:
    return Scrubber(directory, SMALL, clock_ms=clock or FakeClock(), file_system=disk)


def whole_pass(scrub: Scrubber, end: int) -> tuple[Problem, ...]:
    while scrub.step(end) is not None:
        pass
    return scrub.progress.damage


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    """A disk with a store that a writer has open."""
    disk = SimDisk()
    store = written(disk)
    yield disk
    store.close()


def flip(disk: SimDisk, name: str, position: int) -> None:
    content = bytearray(disk.content()[STORE / name])
    content[position] ^= 1
    disk._inode(STORE / name).write(bytes(content))


def test_a_healthy_store_has_no_damage_and_was_verified(disk: SimDisk) -> None:
    clock = FakeClock()
    scrub = scrubber(disk, clock=clock)
    assert scrub.is_due(0, COLD)
    assert whole_pass(scrub, COLD) == ()
    assert (scrub.done_bytes, scrub.all_bytes) == (COLD, COLD)
    assert scrub.progress.verified_ms == clock.now_ms
    assert read_progress(disk, STORE) == scrub.progress
    assert not scrub.is_due(0, COLD)
    clock.now_ms += PASS_INTERVAL_MS
    assert scrub.is_due(0, COLD)


def test_nothing_is_due_before_a_file_is_cold(disk: SimDisk) -> None:
    scrub = scrubber(disk)
    assert not scrub.is_due(0, 4095)
    assert not scrub.is_due(COLD, COLD + 4095), "retention has removed the files before"
    assert scrub.step(4095) is None
    assert scrub.progress.verified_ms is None


def test_a_broker_s_store_has_no_damage() -> None:
    with open_golden() as store:
        scrub = Scrubber(
            store.directory, store.config, clock_ms=FakeClock(),
            is_foreign=True, is_written=False, keeps=False,
        )  # fmt: skip
        end = int(store.reads.max_physical_offset)
        assert whole_pass(scrub, end) == ()
        assert scrub.done_bytes == end


FLIPS = {
    "body": (SECOND, 90, "bytes have no complete record"),
    "size": (SECOND, 3, "bytes have no complete record"),
    "magic": (SECOND, 5, "bytes have no complete record"),
    "the blank record": (SECOND, -1, "bytes have no complete record"),
    "queue offset": (SECOND, 27, "bytes have no complete record"),
    "entry's offset": (f"consumequeue/Trade/1/{140:020d}", 7, "has no entry at offset 7 of queue"),
    "entry's size": (f"consumequeue/Trade/1/{140:020d}", 11, "has no entry at offset 7 of queue"),
    "entry's code": (f"consumequeue/Trade/1/{140:020d}", 19, "has no entry at offset 7 of queue"),
}


@pytest.mark.parametrize("what", FLIPS)
def test_a_flip_in_a_cold_file_is_found_until_it_is_repaired(disk: SimDisk, what: str) -> None:
    name, position, expected = FLIPS[what]
    content = disk.content()[STORE / name]
    if position < 0:
        position = content.rindex(b"\xcb\xd4\x31\x94")
    flip(disk, name, position)
    clock = FakeClock()
    scrub = scrubber(disk, clock=clock)
    (problem,) = whole_pass(scrub, COLD)
    assert expected in problem.what
    assert problem.file in (FIRST, SECOND)
    assert scrubber(disk).progress.damage == (problem,)  # also after a restart
    flip(disk, name, position)
    clock.now_ms += PASS_INTERVAL_MS
    assert whole_pass(scrub, COLD) == ()


def test_random_damage_is_found_where_it_is(rng: Random, disk: SimDisk) -> None:
    """Whatever a sector has lost of records, what follows them is found whole."""
    for _ in range(20):
        sector = rng.randrange(0, COLD - 4096, 512)
        name = f"commitlog/{sector - sector % 4096:020d}"
        before = disk.content()[STORE / name]
        at = sector % 4096
        after = before[:at] + rng.randbytes(512) + before[at + 512 :]
        disk._inode(STORE / name).write(after)
        damage = whole_pass(scrubber(disk), COLD)
        assert {problem.file for problem in damage} == {name}
        assert any(at - 300 < problem.offset < at + 512 for problem in damage)
        disk._inode(STORE / name).write(before)
        disk.unlink(STORE / "scrub.json")


def test_sectors_that_the_disk_cannot_read_are_damage(disk: SimDisk) -> None:
    def fail(call: str, path: Path) -> None:
        if call == "read_uncached" and path == STORE / SECOND:
            raise OSError(errno.EIO, "Input/output error", str(path))

    disk.before = fail
    (problem,) = whole_pass(scrubber(disk), COLD)
    assert problem == Problem(SECOND, 0, "these 4096 bytes cannot be read: Input/output error")


def records_in(log: bytes) -> list[range]:
    """The places of the records of a log file, by their sizes; the last one is its blank's head."""
    found, at, magic = [], 0, 0
    while magic != MAGIC_BLANK:
        size, magic = struct.unpack_from(">ii", log, at)
        found.append(range(at, at + size))
        at += size
    return [*found[:-1], found[-1][:BLANK_BYTES]]


def test_what_is_around_a_bad_sector_is_checked(rng: Random) -> None:
    """Only the records that lie on it are damage, to the byte; a blank holds nothing."""
    config = replace(SMALL, commit_log_segment_bytes=1 << 20)
    bad = range(rng.randrange(0, 1 << 20, 4096), 1 << 20)[:4096]

    class Disk(SimDisk):
        def read_uncached(self, path: Path, start: int, size: int) -> npt.NDArray[np.uint8]:
            if path.parent.name == "commitlog" and start < bad.stop and bad.start < start + size:
                raise OSError(errno.EIO, "Input/output error", str(path))
            return super().read_uncached(path, start, size)

    disk = Disk()
    with MessageStore(STORE, config, clock_ms=FakeClock(), file_system=disk) as store:
        while store.reads.max_physical_offset <= 1 << 20:
            store.put([message(rng.randrange(100), size=rng.randrange(3000)) for _ in range(20)], 0)
        store.flush(everything=True)
        scrub = Scrubber(STORE, config, clock_ms=FakeClock(), file_system=disk)
        *records, blank = records_in(disk.content()[STORE / FIRST])
        problems = whole_pass(scrub, 1 << 20)
    lost = [
        each.start for each in (*records, blank) if bad.start < each.stop and each.start < bad.stop
    ]
    end = min((each.start for each in records if each.start >= bad.stop), default=1 << 20)
    text = "these {} bytes cannot be read: Input/output error"
    assert problems == tuple(Problem(FIRST, start, text.format(end - start)) for start in lost[:1])


def test_what_a_second_read_does_not_find_is_no_damage(disk: SimDisk) -> None:
    once = iter([None])

    def flip_once(call: str, path: Path) -> None:
        if call == "read_uncached" and path == STORE / SECOND and next(once, "over") is None:
            raise OSError(errno.EIO, "Input/output error", str(path))

    disk.before = flip_once
    assert whole_pass(scrubber(disk), COLD) == ()


def test_a_restart_continues_with_the_file_in_which_it_was(disk: SimDisk) -> None:
    flip(disk, FIRST, 90)
    scrub = scrubber(disk)
    while scrub.progress.position < 8192:
        scrub.step(COLD)
    found = scrub.progress.damage
    read: list[str] = []
    disk.before = lambda call, path: read.append(path.name) if call == "read_uncached" else None
    again = scrubber(disk)
    assert again.progress.begun_ms is not None
    assert again.is_due(0, 0)
    assert whole_pass(again, COLD) == found != ()
    assert read[0] == f"{8192:020d}"


def test_files_that_are_removed_under_it_are_no_damage(rng: Random, tmp_path: Path) -> None:
    """Retention removes files between any two steps, while messages are stored."""
    for number in range(5):
        directory = tmp_path / str(number)
        store = written(SYSTEM_FILES, directory)
        scrub = scrubber(SYSTEM_FILES, directory)
        is_over = False
        while not is_over:
            if rng.random() < 0.2:
                store.expire(RetentionPolicy(max_bytes=8192), DiskUse(0, 1 << 40))
            store.put([message(rng.randrange(100))], rng.randrange(2))
            store.flush()
            is_over = scrub.step(int(store.reads.flushed_offset)) is None
        assert scrub.progress.damage == ()
        assert scrub.progress.verified_ms is not None
        store.close()


def test_what_a_repair_has_reported_is_not_reported_again() -> None:
    disk = SimDisk()
    written(disk).close()
    flip(disk, SECOND, 90)
    flip(disk, FIRST, 27)  # a queue offset
    assert len(whole_pass(scrubber(disk), COLD)) >= 2
    with MessageStore(STORE, salvage=Salvage.ALL, clock_ms=FakeClock(), file_system=disk) as store:
        assert store.recovery is not None
        assert len(store.recovery.holes) >= 2
    scrub = scrubber(disk)
    assert scrub.progress.damage == ()
    assert whole_pass(scrub, COLD) == ()
    flip(disk, f"commitlog/{8192:020d}", 90)
    assert len(whole_pass(scrubber(disk), COLD)) == 1


def test_a_file_of_a_later_version_is_left_as_it_is(disk: SimDisk) -> None:
    later = b'{"version":2,"position":[]}'
    disk.write(STORE / "scrub.json", later)
    assert whole_pass(scrubber(disk), COLD) == ()
    assert disk.content()[STORE / "scrub.json"] == later


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"position":-1}', b'{"version":1}'])
def test_a_damaged_file_begins_a_pass_anew(disk: SimDisk, content: bytes) -> None:
    disk.write(STORE / "scrub.json", content)
    scrub = scrubber(disk)
    assert whole_pass(scrub, COLD) == ()
    assert read_progress(disk, STORE) == scrub.progress
