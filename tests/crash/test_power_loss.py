"""Every short history of a store, cut off by a power failure in every way, and recovered.

A history is up to four messages, each put behind the last one or rolling to a new file, and after
each of them nothing, a flush of the log (which acknowledges for ``disk``) or a dispatch (queues,
index and checkpoint follow). What may remain of it is enumerated by ``SimDisk``; disks that are
equal are recovered once, and judged for every history that they came from.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.harness.amounts import ALL, tenth
from support.nodes.stores import FakeClock, check_whole, kill, message
from support.sim.sim_disk import Bound, Outcome, PowerLostError, SimDisk, power_fails_after

from rocketray.base.config import StoreConfig
from rocketray.message import StoredMessage
from rocketray.store.files.file_system import FileSystem
from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.recovery import RecoveryReport

pytestmark = pytest.mark.proves(
    "durability",
    'Power loss loses no message acknowledged with `"disk"`, during recovery either',
)

STORE = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=2,
    index_hash_slots=3,
    index_entries=8,
)
MOST_MESSAGES = 4
PUT_BYTES, ROLL_BYTES = 20, 3800  # a record of the second kind fits behind none
STEP_MS = 5000  # more than the checkpoint's margin, so that it vouches for something
QUICK = Bound(all_up_to=16, random_count=4)
THOROUGH = Bound(
    all_up_to=int(os.environ.get("ROCKETRAY_TEST_CRASH_STATES", "256")), random_count=64
)
EVERY = 1 if ALL else 20  # of the longer histories, so many have one that is tried
AGAIN_EVERY = 4  # so many disks are recovered twice; all of them in the long form


@dataclass(frozen=True)
class History:
    """What was done, what a power failure may leave of it, and how many messages are safe."""

    name: str
    outcomes: list[Outcome]
    messages: list[StoredMessage]
    safe: int


@dataclass(frozen=True)
class Recovered:
    """What a store held after recovery."""

    messages: list[StoredMessage]
    report: RecoveryReport


class Examiner:
    """Recovers each disk once, and judges what it held by each history that it came from."""

    def __init__(self, again_every: int) -> None:
        self.states = 0
        self._again_every = again_every
        self._seen: dict[object, Recovered] = {}

    def examine(self, history: History) -> None:
        """Nothing acknowledged for disk is missing, nothing is foreign, what is lost is the end."""
        for outcome in history.outcomes:
            self.states += 1
            key = outcome.key()
            if key not in self._seen:
                again = len(self._seen) % self._again_every == 0
                self._seen[key] = recover_again(outcome) if again else recover(outcome.disk())
            found = self._seen[key].messages
            assert found == history.messages[: len(found)], history.name
            assert len(found) >= history.safe, history.name

    @property
    def disks(self) -> int:
        """How many different disks there were."""
        return len(self._seen)


def open_store(disk: SimDisk, clock: FakeClock) -> MessageStore:
    """Open it; the copy of its settings is durable: test_settings_power_loss.py loses that."""
    store = MessageStore(STORE, CONFIG, clock_ms=clock, file_system=disk)
    disk.sync(STORE / "store.json.bak")
    return store


def recover(disk: SimDisk) -> Recovered:
    """Open the disk as it is, check that all parts agree, and leave it as a kill would."""
    store = open_store(disk, FakeClock(1_800_000_000_000))
    check_whole(store)
    assert store.recovery is not None
    found = Recovered(list(store.reads.scan()), store.recovery)
    kill(store)
    return found


def recover_again(outcome: Outcome) -> Recovered:
    """Recover, die, and recover: it ends the same. Then after a clean stop nothing is to be done."""
    disk = outcome.disk()
    found = recover(disk)
    content = but_index(disk)
    again = recover(disk)
    assert again.messages == found.messages
    assert again.report.bytes_kept_aside == again.report.queue_entries_cut == 0
    assert but_index(disk) == content
    open_store(disk, FakeClock(1_800_000_000_000)).close()
    store = open_store(disk, FakeClock(1_800_000_000_000))
    assert store.recovery is not None
    assert store.recovery.was_clean
    kill(store)
    return found


def kill_at_rest(store: MessageStore) -> None:
    store.flush(everything=True)
    assert store.rest()
    kill(store)


def but_index(disk: SimDisk) -> dict[Path, bytes]:
    """All files but those of the index, whose names are times, a report, and the open mark."""
    return {
        path: one
        for path, one in disk.content().items()
        if path.parent.name != "index" and path.name not in ("recovered.json", "abort")
    }


def words(most: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every history: pairs of how a message is put and what follows it."""
    steps = list(itertools.product(("put", "roll"), ("", "flush", "dispatch")))
    for count in range(1, most + 1):
        yield from itertools.product(steps, repeat=count)


def run(word: Sequence[tuple[str, str]], bound: Bound, seed: int) -> History:
    disk, clock = SimDisk(), FakeClock()
    store = open_store(disk, clock)
    placed, safe = [], 0
    for number, (how, then) in enumerate(word):
        size = PUT_BYTES if how == "put" else ROLL_BYTES
        placed += store.put([message(number, size=size)], number % 2)
        disk.note()
        clock.now_ms += STEP_MS
        if then:
            store._flush(everything=then == "dispatch")
            safe = number + 1
    messages = [store.reads.view(one.physical_offset) for one in placed]
    outcomes = list(disk.outcomes(bound, random.Random(seed)))
    kill(store)
    return History(" ".join(itertools.chain(*word)), outcomes, messages, safe)


def test_no_call_of_a_store_on_a_disk_in_memory_goes_to_the_system() -> None:
    calls = {name for name in vars(FileSystem) if not name.startswith("_")}
    assert len(calls) > 10
    assert calls <= vars(SimDisk).keys()


def test_power_failures_in_short_histories_lose_nothing_acknowledged(seed: int) -> None:
    """All histories of up to two messages, and some of more, of which the long form has all."""
    examiner, tried = Examiner(AGAIN_EVERY), Counter[int]()
    for number, word in enumerate(words(MOST_MESSAGES)):
        if (number + seed) % {3: EVERY, 4: 8 * EVERY}.get(len(word), 1) == 0:
            examiner.examine(run(word, QUICK, seed=number))
            tried[len(word)] += 1
    assert (tried[1], tried[2]) == (6, 36)
    assert tried[3] >= 6**3 // EVERY
    assert tried[4] >= 6**4 // (8 * EVERY)
    assert examiner.states > 1_000


@pytest.mark.proves("producers", "No message acknowledged on disk is missing after a power failure")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_power_failure_in_a_short_history_loses_nothing_acknowledged() -> None:
    examiner = Examiner(1)
    for number, word in enumerate(words(MOST_MESSAGES)):
        examiner.examine(run(word, THOROUGH, seed=number))
    assert number + 1 == sum(6**count for count in range(1, MOST_MESSAGES + 1))
    assert examiner.states > 40_000


def test_a_power_failure_in_the_life_after_a_kill_loses_nothing_acknowledged(seed: int) -> None:
    """A writer dies, or stops, and the next one goes on with files whose names nobody synced."""
    examiner = Examiner(AGAIN_EVERY)
    for number, (word, end, prepare) in enumerate(
        itertools.product(words(2), (kill, kill_at_rest, MessageStore.close), (False, True))
    ):
        if (number + seed) % EVERY:
            continue
        disk, clock = SimDisk(), FakeClock()
        store = open_store(disk, clock)
        expected, safe = [], 0
        for at, (how, then) in enumerate(word):
            size = PUT_BYTES if how == "put" else ROLL_BYTES
            (placed,) = store.put([message(at, size=size)], at % 2)
            expected.append(store.reads.view(placed.physical_offset))
            if prepare:
                store.prepare_next()
            end(store)
            clock.now_ms += STEP_MS
            store = open_store(disk, clock)
            if then:
                (placed,) = store.put([message(10 + at, size=size)], at % 2)
                expected.append(store.reads.view(placed.physical_offset))
                store._flush(everything=then == "dispatch")
            safe = len(expected)  # recovery, or the stop, brought all of it to disk
        outcomes = list(disk.outcomes(QUICK, random.Random(number)))
        kill(store)
        examiner.examine(History(f"{word} {end} {prepare}", outcomes, expected, safe))
    assert examiner.states > 500 // EVERY


def test_a_power_failure_in_the_middle_of_recovery_is_recovered_from(rng: random.Random) -> None:
    """The power goes before each call of a recovery that changes a file, and then again."""
    word = (("put", "dispatch"), ("roll", "flush"), ("put", ""), ("put", ""))
    history = run(word, QUICK, seed=7)
    failures = 0
    for outcome in history.outcomes[:: max(len(history.outcomes) // tenth(20), 1)]:
        for calls in itertools.count():
            disk = outcome.disk()
            disk.before = power_fails_after(calls)
            try:
                kill(open_store(disk, FakeClock(1_800_000_000_000)))
            except PowerLostError:
                failures += 1
            else:
                break
            disk.before = lambda _name, _path: None
            for again in disk.outcomes(Bound(4, 2), rng):
                found = recover(again.disk()).messages
                assert found == history.messages[: len(found)]
                assert len(found) >= history.safe
    assert failures > 50
