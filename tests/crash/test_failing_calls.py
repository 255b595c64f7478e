"""Each call that a store makes of its file system fails once: no room, or the disk gives up.

What was acknowledged is there afterwards, what was refused is not, and after a flush that failed
the store takes nothing more: nobody knows what the system still has of it.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.harness import machine
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message
from support.sim.sim_disk import Bound, SimDisk

from rocketray.base.config import StoreConfig
from rocketray.errors import StoreError, StoreFullError
from rocketray.message import StoredMessage
from rocketray.store.message_store import MessageStore

pytestmark = [
    pytest.mark.proves("durability", "Without space a send fails as a whole"),
    pytest.mark.proves(
        "durability",
        "A failed sync or other call stops the store and loses nothing acknowledged before",
    ),
]

STORE = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=2,
    index_hash_slots=3,
    index_entries=8,
    consume_queue_ext=True,
    consume_queue_ext_segment_bytes=4096,
)
FAILED_DISK = "failed_disk.json"
STEPS = ("put", "roll", "prepare", "put", "flush", "put", "dispatch", "roll", "put", "dispatch")
ERRORS: dict[str, Callable[[], Exception]] = {
    "no room": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "broken disk": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "too many files": lambda: StoreError("raise the limit of open files"),  # see file_system.py
}
FAILING = {
    "no room": {"create", "allocate", "write", "rename", "make_directory"},
    "broken disk": {"create", "allocate", "write", "rename", "make_directory", "sync", "unlink"},
    "too many files": {"create", "open", "allocate", "write", "sync"},
}


class Workload:
    """Goes through the steps, whatever fails, and remembers what was promised."""

    def __init__(self, disk: SimDisk) -> None:
        self.clock = FakeClock()
        self.open(disk)
        self.kept: list[StoredMessage] = []
        self.safe = 0
        self.failures: list[StoreError] = []

    def open(self, disk: SimDisk) -> None:
        self.store = MessageStore(STORE, CONFIG, clock_ms=self.clock, file_system=disk)

    def run(self) -> None:
        for number, step in enumerate(STEPS):
            self.clock.now_ms += 5000
            try:
                self._do(number, step)
            except StoreError as error:  # nothing else may come out
                self.failures.append(error)

    def _do(self, number: int, step: str) -> None:
        if step in ("put", "roll"):
            size = 20 if step == "put" else 3700
            (placed,) = self.store.put([message(number, size=size)], number % 2)
            self.kept.append(self.store.reads.view(placed.physical_offset))
        elif step == "prepare":
            self.store.prepare_next()
        else:
            self.store.flush(everything=step == "dispatch")
            self.safe = len(self.kept)


def calls_of_the_workload() -> list[tuple[str, Path]]:
    made: list[tuple[str, Path]] = []
    disk = SimDisk()
    workload = Workload(disk)
    disk.before = lambda name, path: made.append((name, path))
    workload.run()
    assert not workload.failures
    kill(workload.store)
    return made


CALLS = calls_of_the_workload()


@pytest.mark.parametrize("kind", ERRORS)
def test_a_call_that_fails_costs_nothing_that_was_acknowledged(kind: str) -> None:
    tried = 0
    for failing, (name, _) in enumerate(CALLS):
        if name not in FAILING[kind]:
            continue
        tried += 1
        disk = SimDisk()
        workload = Workload(disk)
        disk.before = fail_once(failing, ERRORS[kind])
        workload.run()
        disk.before = lambda _name, _path: None
        assert workload.failures
        first = workload.failures[0]
        if kind == "too many files" or isinstance(first, StoreFullError):
            assert re.match("raise the limit of open files|.*free space", str(first))
            assert len(workload.failures) == 1  # the next one goes in
        else:
            assert all("open" in str(error) for error in workload.failures)
            safe = re.search(r"from offset (\d+) on may not be on disk", str(first))
            assert safe is None or int(safe[1]) == workload.store.reads.flushed_offset
            workload.store.close()  # says nothing, and leaves the mark of a crash
            assert disk.exists(STORE / "abort")
        for outcome in itertools.islice(disk.outcomes(Bound(2, 1), random.Random(failing)), 3):
            check(outcome.disk(), workload, at_least=workload.safe)
        disk.locks.clear()
        check(disk, workload, at_least=len(workload.kept))
    assert tried > 10


@pytest.mark.proves(
    "durability",
    "What a failed sync left in memory, which Linux takes for written, is on disk after the next "
    "opening; a store whose disk failed stays closed until it is repaired",
)
def test_what_a_failed_sync_left_in_memory_is_on_disk_after_the_next_opening() -> None:
    """The system takes it for written; so the next process has to store it again."""
    tried = 0
    for failing, (name, _) in enumerate(CALLS):
        if name != "sync":
            continue
        tried += 1
        disk = SimDisk()
        workload = Workload(disk)
        disk.before = fail_once(failing, ERRORS["broken disk"])
        workload.run()
        disk.before = lambda _name, _path: None
        disk.locks.clear()
        disk.unlink(STORE / FAILED_DISK)  # as if it could not be written
        workload.open(disk)
        store = workload.store
        assert len([*store.reads.scan()]) == len(workload.kept)
        workload.run()  # what follows makes recovery trust the files before
        store.flush(everything=True)
        for outcome in itertools.islice(disk.outcomes(Bound(2, 1), random.Random(failing)), 3):
            check(outcome.disk(), workload, at_least=len(workload.kept))
        kill(store)
    assert tried > 10


def fail_once(failing: int, error: Callable[[], Exception]) -> Callable[[str, Path], None]:
    left = itertools.count(failing, -1)

    def fail(_name: str, _path: Path) -> None:
        if next(left) == 0:
            raise error()

    return fail


def check(disk: SimDisk, workload: Workload, *, at_least: int) -> None:
    if disk.exists(STORE / FAILED_DISK):
        with pytest.raises(StoreError, match="rocketray store recover /store"):
            MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
        disk.unlink(STORE / FAILED_DISK)
    store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
    assert store.verify().problems == ()
    found = list(store.reads.scan())
    assert found == workload.kept[: len(found)]
    assert len(found) >= at_least
    kill(store)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    machine.require("mounts")
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        machine.skip("mounts", done.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_full_file_system_refuses_what_it_has_no_room_for(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "160k"):
        directory = tmp_path / "small" / "store"
        ballast = tmp_path / "small" / "ballast"
        ballast.write_bytes(bytes(40_000))
        kept = 0
        with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
            full = None
            while full is None:
                try:
                    store.put([message(kept, size=900)], 0)
                    kept += 1
                except StoreFullError as error:
                    full = error
            assert "free space on its file system" in str(full)
            assert kept > 5
            assert check_whole(store) == kept
            store.flush()
            ballast.unlink()
            store.put([message(kept)], 0)
            assert check_whole(store) == kept + 1
        with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
            assert check_whole(store) == kept + 1


LIMITED = """
import resource, signal, sys
from dataclasses import replace
from pathlib import Path
from support.nodes.stores import SMALL, FakeClock, message
from rocketray.errors import StoreFullError
from rocketray.store.message_store import MessageStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
config = replace(SMALL, commit_log_segment_bytes=8192)
store = MessageStore(Path(sys.argv[1]), config, clock_ms=FakeClock())
store.put([message(0)], 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
for number in range(1, 99):
    try:
        store.put([message(number)], 0)
    except StoreFullError:
        print(number, flush=True)
        store.close()
        break
"""


FEW_FILES = """
import os, resource, sys
from pathlib import Path
from support.nodes.stores import SMALL, FakeClock, check_whole, message
from rocketray.errors import StoreError
from rocketray.store.message_store import MessageStore
path = Path(sys.argv[1])
store = MessageStore(path / "a", SMALL, clock_ms=FakeClock())
kept = 0
while kept < 5:
    store.put([message(kept)], 0)
    kept += 1
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
os.close(free := os.dup(0))
resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
refused = set()
for use in (
    lambda: MessageStore(path / "b", SMALL, clock_ms=FakeClock()),
    lambda: MessageStore(path / "a", clock_ms=FakeClock(), read_only=True),
    lambda: store.flush(everything=True),
    lambda: [store.put([message(kept, size=900)], 1) for _ in range(99)],
):
    try:
        use()
    except StoreError as error:
        refused.add("raise the limit of open files" in str(error))
    else:
        refused.add("nothing")
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
before = check_whole(store)
store.put([message(before)], 0)
assert check_whole(store) == before + 1 > kept
store.close()
assert MessageStore(path / "b", SMALL, clock_ms=FakeClock()).recovery.was_clean
print(refused)
"""


def test_a_limit_on_open_files_is_told_and_what_is_over_it_goes_in_later(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FEW_FILES, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{True}"


FEW_ADDRESSES = """
import re, resource, sys
from pathlib import Path
from support.nodes.stores import FakeClock, check_whole, message
from rocketray.errors import StoreError
from rocketray.store.message_store import MessageStore
path, clock = Path(sys.argv[1]), FakeClock()
store, other = (MessageStore(path / name, clock_ms=clock) for name in "ab")
store.put([message(0)], 0)
used = int(re.search(r"VmSize:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), most))  # half of a file of the log
refused = set()
for use in (
    lambda: other.put([message(0)], 0),
    lambda: MessageStore(path / "a", clock_ms=clock, read_only=True).reads.view(0),
):
    try:
        use()
    except StoreError as error:
        refused.add("vm.max_map_count" in str(error))
    else:
        refused.add("nothing")
store.put([message(1)], 0)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
other.put([message(0)], 0)
assert (check_whole(store), check_whole(other)) == (2, 1)
store.close()
other.close()
assert MessageStore(path / "b", clock_ms=clock).recovery.was_clean
print(refused)
"""


def test_a_limit_on_maps_is_told_and_what_is_over_it_goes_in_later(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FEW_ADDRESSES, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{True}"


def test_a_limit_on_file_sizes_refuses_what_is_over_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "store"), "8191"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    kept = int(done.stdout)
    assert kept > 5
    with MessageStore(tmp_path / "store", clock_ms=FakeClock()) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert check_whole(store) == kept
