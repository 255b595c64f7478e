"""Every kind of damage is found, and where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.stores import NO_CRC, FakeClock, message, open_golden

from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.problem import Problem

MESSAGES = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two queues over several files, closed; a wrong field is no broken record there."""
    clock = FakeClock()
    with MessageStore(tmp_path / "store", NO_CRC, clock_ms=clock) as store:
        for number in range(MESSAGES):
            store.put([message(number)], number % 2)
            clock.now_ms += 1000
    return tmp_path / "store"


def problems_of(directory: Path) -> tuple[Problem, ...]:
    with MessageStore(directory, read_only=True, clock_ms=FakeClock()) as store:
        return store.verify().problems


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_the_store_that_rocketmq_wrote_has_no_problem() -> None:
    with open_golden() as store:
        found = store.verify()
    assert found.problems == ()
    assert (found.records, found.queue_entries, found.keys) == (600, 600, 1113)


def test_a_whole_store_has_no_problem(directory: Path) -> None:
    assert problems_of(directory) == ()


QUEUE_FILE = f"consumequeue/Trade/1/{140:020d}"


def test_a_scrub_reads_the_log_beside_its_writer(directory: Path) -> None:
    with MessageStore(directory, clock_ms=FakeClock()):
        found = json.loads(run_here("store", "verify", directory, "--scrub", "--json").out)
    assert found["inUse"]
    path = directory / f"commitlog/{0:020d}"
    flip(path, 90)
    scrubbed = run_here("store", "verify", directory, "--scrub", "--rate", "none", "--json")
    assert scrubbed.code == 1
    found = json.loads(scrubbed.out)
    (problem,) = found["problems"]
    assert (problem["file"], problem["offset"]) == (str(path), 0)
    assert found["bytes"] == found["maxPhyOffset"] > 0
    assert not found["inUse"]
    assert "1 problem\n" in run_here("store", "verify", directory, "--scrub").out


FAULTS: dict[str, tuple[str, Callable[[Path], tuple[Path, int]], str]] = {
    "body": (f"commitlog/{0:020d}", lambda d: (d, 90), "bytes have no complete record"),
    "magic": (f"commitlog/{4096:020d}", lambda d: (d, 5), "bytes have no complete record"),
    "queue id": (f"commitlog/{0:020d}", lambda d: (d, 15), "has no entry at offset 0 of queue"),
    "queue offset": (f"commitlog/{0:020d}", lambda d: (d, 27), "no entry at offset 1 of queue"),
    "entry's offset": (QUEUE_FILE, lambda d: (d, 27), "points to no record of this queue"),
    "entry's size": (QUEUE_FILE, lambda d: (d, 31), "points to no record of this queue"),
    "entry's code": (QUEUE_FILE, lambda d: (d, 39), "points to no record of this queue"),
    "behind the end": (f"consumequeue/Trade/1/{280:020d}", lambda d: (d, 139), "1 entry follows the last one"),
    "behind the log": (f"commitlog/{4096:020d}", lambda d: (d, 4090), "bytes follow"),
    "index entry's hash": ("index", lambda d: (min(d.iterdir()), 83), "is missing"),
    "index entry's link": ("index", lambda d: (min(d.iterdir()), 99), "the previous entry of its slot"),
    "index slot": ("index", lambda d: (min(d.iterdir()), 43), "the newest entry of slot"),
    "index header": ("index", lambda d: (min(d.iterdir()), 35), "slots in use"),
    "checkpoint": ("checkpoint", lambda d: (d, 1), "the checkpoint covers records up to"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_flipped_bit_is_located(directory: Path, fault: str) -> None:
    name, place, expected = FAULTS[fault]
    path, position = place(directory / name)
    flip(path, position)
    problems = problems_of(directory)
    assert any(expected in problem.what for problem in problems), problems
    places = [(Path(problem.file), problem.offset) for problem in problems]
    if "behind" in fault:  # said where the good ones end
        assert path in [file for file, _ in places]
    elif fault != "checkpoint":
        assert any(file == path and abs(at - position) < 210 for file, at in places), problems


def test_the_command_says_so_and_recover_repairs_what_can_be(directory: Path) -> None:
    (found,) = run_here("store", "verify", directory, "--json").lines()
    assert found["lastRecovery"] is None
    flip(directory / QUEUE_FILE, 27)
    done = run_here("store", "verify", directory, "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert found["records"] == MESSAGES
    assert {problem["file"] for problem in found["problems"]} >= {str(directory / QUEUE_FILE)}
    (report,) = run_here("store", "recover", directory, "--json").lines()
    assert report["messages"] == MESSAGES
    assert report["queues"] == {"Trade/0": [0, 15], "Trade/1": [0, 15]}
    assert report["minPhyOffset"] == 0
    assert report["rebuiltEntries"] >= 1
    (found,) = run_here("store", "verify", directory, "--json").lines()
    last = found["lastRecovery"]
    assert last["time"]
    assert last["holes"] == []
    for name in ("files", "records", "bytesCut", "rebuiltEntries", "seconds"):
        assert last[name] == report[name]
    (directory / "commitlog" / f"{0:020d}").write_bytes(bytes(100))
    done = run_here("store", "verify", directory, "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert "the file has 100 bytes where 4096 are expected" in found["problems"][0]["problem"]
