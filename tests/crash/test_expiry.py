"""A store whose writer dies while old files are removed: it opens, and all that stays is there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from support.nodes.stores import SMALL, FakeClock, kill, message, read_all
from support.sim.sim_disk import Bound, Outcome, SimDisk

from rocketray.errors import StoreError
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

QUEUES = [("Trade", 0), ("Trade", 1)]
COUNT = 60  # of 250 bytes: four files of the log, five of each queue, twenty of the index
NEWEST_ONLY = RetentionPolicy(max_bytes=1)
DISK = DiskUse(0, 1 << 40)


class Died(BaseException):
    """The end of the process, which no handler keeps from ending."""


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    clock = FakeClock()
    made = open_store(tmp_path / "store", clock)
    for number in range(COUNT):
        made.put([message(number)], number % 2)
        clock.now_ms += 1
    made.flush(everything=True)
    return made


def open_store(directory: Path, clock: FakeClock | None = None) -> MessageStore:
    return MessageStore(directory, SMALL, clock_ms=clock or FakeClock(1_800_000_000_000))


def log_starts(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in (directory / "commitlog").glob("0*"))


def check(store: MessageStore, left: int) -> None:
    """Check that exactly the messages from physical offset *left* on are there, found every way."""
    assert store.reads.min_physical_offset == left
    scanned = list(store.reads.scan())
    assert [int(one.body[:8]) for one in scanned] == list(range(COUNT - len(scanned), COUNT))
    for topic, queue_id in QUEUES:
        found = read_all(store, topic, queue_id)
        assert found == [one for one in scanned if one.queue_id == queue_id]
        end = store.reads.max_queue_offset(topic, queue_id)
        assert store.reads.gaps(topic, queue_id).before(end) == COUNT // 2
    for one in scanned:
        assert store.reads.query("Trade", one.unique_key or "") == [one]
    assert store.reads.query("Trade", "key-0") == []


def removals(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that a round removes, in order; they are removed."""
    removed: list[Path] = []
    unlink = SYSTEM_FILES.unlink

    def note(path: Path) -> None:
        removed.append(path)
        unlink(path)

    with monkeypatch.context() as patched:
        patched.setattr(SYSTEM_FILES, "unlink", note)
        store.expire(NEWEST_ONLY, DISK)
    return removed


@pytest.mark.proves(
    "retention",
    "A writer that dies between two removals leaves a log without a gap",
)
def test_a_writer_that_dies_between_two_removals_leaves_a_store_without_a_gap(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store.directory, tmp_path / "before")
    count = len(removals(store, monkeypatch))
    store.close()
    assert count > 10
    unlink = SYSTEM_FILES.unlink
    for steps in range(count):
        directory = shutil.copytree(tmp_path / "before", tmp_path / f"after-{steps}")
        cut_short = open_store(directory)
        left = steps

        def die(path: Path) -> None:
            nonlocal left
            if left == 0:
                raise Died
            left -= 1
            unlink(path)

        with monkeypatch.context() as patched:
            patched.setattr(SYSTEM_FILES, "unlink", die)
            with pytest.raises(Died):
                cut_short.expire(NEWEST_ONLY, DISK)
        kill(cut_short)
        starts = log_starts(directory)
        assert starts == list(range(starts[0], starts[-1] + 1, SMALL.commit_log_segment_bytes))
        with open_store(directory) as opened:
            if starts[0]:
                check(opened, starts[0])
            opened.expire(NEWEST_ONLY, DISK)
            check(opened, starts[-1])


def test_files_of_queues_and_index_that_come_back_lead_to_nothing_and_go(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their removal may be lost with the power, any of the index's and the last of a queue's."""
    shutil.copytree(store.directory, tmp_path / "before")
    removed = [path.relative_to(store.directory) for path in removals(store, monkeypatch)]
    kill(store)
    index = [path for path in removed if path.parent.name == "index"]
    queue = [path for path in removed if path.parent.name == "1"]
    for back in (index[:1], index[-1:], index[::2], queue[-1:], index + queue[-1:]):
        directory = shutil.copytree(store.directory, tmp_path / "after")
        for path in back:
            shutil.copy(tmp_path / "before" / path, directory / path)
        with open_store(directory) as opened:
            check(opened, log_starts(directory)[0])
        assert not any((directory / path).exists() for path in back)
        shutil.rmtree(directory)


def test_a_file_that_cannot_be_removed_is_an_error_and_goes_the_next_time(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise PermissionError(f"not {path}")

    with monkeypatch.context() as patched:
        patched.setattr(SYSTEM_FILES, "unlink", fail)
        with pytest.raises(StoreError, match="could not be removed"):
            store.expire(NEWEST_ONLY, DISK)
    newest = log_starts(store.directory)[-1]
    assert log_starts(store.directory)[0] == 0
    check(store, newest)  # nobody is shown what is on its way out
    assert store.expire(NEWEST_ONLY, DISK) == []
    assert log_starts(store.directory) == [newest]
    store.close()


@pytest.mark.proves("retention", "A power failure between two removals loses no remaining message")
def test_power_that_goes_between_two_removals_takes_nothing_that_stays(
    rng: random.Random,
) -> None:
    """Each call that removes or syncs, and whatever subset of the names the disk then keeps."""
    disk, clock = SimDisk(), FakeClock()
    directory = Path("/store")
    store = MessageStore(directory, SMALL, clock_ms=clock, file_system=disk)
    for number in range(COUNT):
        store.put([message(number)], number % 2)
        clock.now_ms += 1000
    store.flush(everything=True)
    newest = max(path.name for path in disk.content() if path.parent.name == "commitlog")
    left: list[Outcome] = []

    def note(call: str, path: Path) -> None:
        if call == "unlink" or path.is_relative_to(directory / "index"):
            left.extend(disk.outcomes(Bound(all_up_to=8, random_count=2), rng))

    disk.before = note
    store.expire(NEWEST_ONLY, DISK)
    kill(store)
    unlike = {outcome.key(): outcome for outcome in left}
    assert len(unlike) > 10
    for outcome in unlike.values():
        again = MessageStore(
            directory, SMALL, clock_ms=FakeClock(1_800_000_000_000), file_system=outcome.disk()
        )
        first = again.reads.min_physical_offset
        assert first % SMALL.commit_log_segment_bytes == 0
        assert first <= int(newest)
        if first:
            check(again, first)
        kill(again)
