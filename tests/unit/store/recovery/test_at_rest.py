"""A store that is killed at rest has nothing to recover; with any doubt, it is recovered."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message
from support.sim.sim_disk import SimDisk

from rocketray.base.config import StoreConfig
from rocketray.errors import StoreError, StoreFullError, StoreLockedError
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

STORE = Path("/store")
MARK = STORE / "abort"
LOG = STORE / f"commitlog/{0:020d}"
QUEUE = STORE / f"consumequeue/Trade/0/{0:020d}"
CLOCK = FakeClock()
FIRST_TWO = [f"{number:08d}".encode().ljust(20, b".") for number in range(2)]


def opened(disk: SimDisk, config: StoreConfig = SMALL) -> MessageStore:
    return MessageStore(STORE, config, clock_ms=CLOCK, file_system=disk)


def bodies(store: MessageStore) -> list[bytes]:
    return [bytes(one.body) for one in store.reads.scan()]


def killed_at_rest(config: StoreConfig = SMALL, count: int = 2) -> SimDisk:
    disk = SimDisk()
    store = opened(disk, config)
    for number in range(count):
        store.put([message(number)], 0)
    store.flush(everything=True)
    assert store.rest()
    kill(store)
    return disk


def changes_of(disk: SimDisk) -> Counter[str]:
    """Count the calls that change *disk* from now on."""
    found: Counter[str] = Counter()

    def note(name: str, _path: Path) -> None:
        if name not in ("open", "read_uncached"):
            found[name] += 1

    disk.before = note
    return found


@pytest.mark.parametrize("count", [0, 2, 40])
@pytest.mark.parametrize("units", [False, True])
def test_a_store_that_is_killed_at_rest_is_opened_without_a_sync(
    count: int, *, units: bool
) -> None:
    disk = killed_at_rest(replace(SMALL, consume_queue_ext=units), count)
    before, changes = disk.content(), changes_of(disk)
    store = opened(disk, replace(SMALL, consume_queue_ext=units))
    assert store.recovery is not None
    assert store.recovery.was_clean
    assert store.is_at_rest
    assert changes == {"unlink": 1, "write": 1}, "a stopped.json, if there is one, and the mark"
    assert {**disk.content(), MARK: b""} == {**before, MARK: b""}
    assert store.reads.max_queue_offset("Trade", 0) == count
    check_whole(store)
    store.put([message(count)], 0)
    assert len(bodies(store)) == count + 1
    kill(store)


def test_a_store_that_is_never_written_is_at_rest_at_once_and_stays_so() -> None:
    disk = SimDisk()
    store = opened(disk)
    for _ in range(3):
        assert store.rest()
        kill(store)
        changes = changes_of(disk)
        store = opened(disk)
        assert store.is_at_rest
        assert changes["sync"] == 0
    kill(store)


def changed(change: Callable[[MessageStore], object]) -> SimDisk:
    """A disk whose store was at rest, then changed, then killed."""
    disk = killed_at_rest(count=60)
    store, woken = opened(disk), []
    store.on_wake = lambda: woken.append(store.is_at_rest)
    change(store)
    assert woken == [True], "once, before the change"
    assert not store.is_at_rest
    kill(store)
    return disk


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.put([message(60)], 0),
        lambda store: store.skip_to("Trade", 0, 100),
        lambda store: store.expire(RetentionPolicy(max_bytes=1), DiskUse(0, 1 << 40)),
    ],
)
def test_a_change_takes_the_note_back_first(change: Callable[[MessageStore], object]) -> None:
    store = opened(changed(change))
    assert store.recovery is not None
    assert not store.recovery.was_clean
    check_whole(store)
    kill(store)


@pytest.mark.parametrize(
    "look",
    [
        lambda store: store.flush(everything=True),
        lambda store: store.skip_to("Trade", 0, 2),
        lambda store: store.expire(RetentionPolicy(), DiskUse(0, 1 << 40)),
        lambda store: store.verify(),
        lambda store: store.prepare_next(),
    ],
)
def test_what_changes_nothing_leaves_it_at_rest(look: Callable[[MessageStore], object]) -> None:
    store = opened(killed_at_rest())
    look(store)
    assert store.is_at_rest
    kill(store)


def test_nothing_is_at_rest_that_is_not_on_disk() -> None:
    store = opened(SimDisk())
    assert store.rest()
    store.put([message(0)], 0)
    assert not store.rest()
    store.flush()
    CLOCK.now_ms += 10_000
    store.flush()
    assert store.rest()
    store.skip_to("Trade", 0, 100)
    assert not store.rest()
    store.flush(everything=True)
    assert store.rest()
    kill(store)


def test_after_a_power_failure_the_note_counts_for_nothing() -> None:
    disk = killed_at_rest()
    disk.boot_number += 1
    store = opened(disk)
    assert store.recovery is not None
    assert not store.recovery.was_clean
    assert bodies(store) == FIRST_TWO
    kill(store)


def edit(path: Path, change: Callable[[bytes], bytes]) -> Callable[[SimDisk], None]:
    return lambda disk: disk.write(path, change(disk.content()[path]))


FAULTS: dict[str, Callable[[SimDisk], None]] = {
    "no second line": edit(MARK, lambda raw: raw.split(b"\n")[0]),
    "half a line": edit(MARK, lambda raw: raw[:-20]),
    "a pid of RocketMQ's": edit(MARK, lambda _: b"4711"),
    "nothing": edit(MARK, lambda _: b""),
    "no object": edit(MARK, lambda _: b"1\n[]\n"),
    "a later log": edit(MARK, lambda raw: raw.replace(b'"log":[0,', b'"log":[0,9')),
    "an earlier log": edit(MARK, lambda raw: raw.replace(b'"log":[0,', b'"log":[0,-')),
    "another queue": edit(MARK, lambda raw: raw.replace(b"Trade/0", b"Trade/1")),
    "no queues": edit(MARK, lambda raw: raw.replace(b'{"Trade/0":[0,2]}', b"null")),
    "a longer queue": edit(MARK, lambda raw: raw.replace(b"[0,2]", b"[0,3]")),
    "a shorter queue": edit(MARK, lambda raw: raw.replace(b"[0,2]", b"[0,1]")),
    "another index": edit(MARK, lambda raw: raw.replace(b'"index":', b'"index":1')),
    "a lost queue file": lambda disk: disk.unlink(QUEUE),
    "a lost log": lambda disk: disk.unlink(LOG),
    "a lost index": lambda disk: disk.unlink(STORE / "index" / disk.names(STORE / "index")[0]),
    "a lost checkpoint": lambda disk: disk.unlink(STORE / "checkpoint"),
    "a short queue file": edit(QUEUE, lambda raw: raw[:30]),
    "a short log": edit(LOG, lambda raw: raw[:200]),
    "no last record": edit(LOG, lambda raw: raw.rstrip(b"\0")[:300].ljust(len(raw), b"\0")),
    "an entry that leads nowhere": edit(QUEUE, lambda raw: raw[:27] + b"\1" + raw[28:]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_differs_from_the_note_is_recovered_as_after_any_crash(fault: str) -> None:
    disk, twin = killed_at_rest(), killed_at_rest()
    FAULTS[fault](disk)
    FAULTS[fault](twin)
    twin.write(MARK, b"4711")  # no note at all
    stores = [opened(disk), opened(twin)]
    for store in stores:
        assert store.recovery is not None
        assert not store.recovery.was_clean
        assert not store.is_at_rest
        check_whole(store)
    assert bodies(stores[0]) == bodies(stores[1])
    assert stores[0].reads.max_queue_offset("Trade", 0) == stores[1].reads.max_queue_offset(
        "Trade", 0
    )
    for store in stores:
        kill(store)


def test_a_record_behind_the_noted_end_is_not_overwritten() -> None:
    disk = killed_at_rest()
    note = disk.content()[MARK]
    store = opened(disk)
    store.put([message(2)], 0)
    store.flush(everything=True)
    kill(store)
    disk.write(MARK, note)  # as if it had not been taken back
    store = opened(disk)
    assert len(bodies(store)) == 3
    check_whole(store)
    kill(store)


def test_a_note_that_cannot_be_taken_back_refuses_the_batch() -> None:
    disk = killed_at_rest()
    store = opened(disk)

    def is_full(name: str, path: Path) -> None:
        if name == "write" and path == MARK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.before = is_full
    with pytest.raises(StoreFullError):
        store.put([message(2)], 0)
    assert store.is_at_rest
    assert bodies(store) == FIRST_TWO
    disk.before = lambda _name, _path: None
    store.put([message(2)], 0)
    kill(store)


def test_a_store_at_rest_that_fails_has_its_owner_look_at_it() -> None:
    """Its owner's timers leave a store at rest alone, and nothing else would close it."""
    disk, woken = killed_at_rest(), list[bool]()
    store = opened(disk)
    store.on_wake = lambda: woken.append(store.is_at_rest)

    def fails(name: str, path: Path) -> None:
        if name == "write" and path == MARK:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.before = fails
    with pytest.raises(StoreError, match="check the disk"):
        store.put([message(2)], 0)
    assert woken[-1] is False
    assert not store.is_at_rest
    assert not store.is_sound
    with pytest.raises(StoreError, match="close the store and open it again"):
        store.flush()
    kill(store)


def test_a_store_of_very_many_queues_is_never_at_rest() -> None:
    disk = SimDisk()
    store = opened(disk)
    for queue_id in range(300):
        store.put([message(queue_id)], queue_id)
    store.flush(everything=True)
    assert not store.rest()
    kill(store)


def test_an_open_store_names_its_process(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        assert store.rest()
        with pytest.raises(StoreLockedError, match=f"by process {os.getpid()};"):
            MessageStore(tmp_path, SMALL, clock_ms=CLOCK)
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean


def test_at_rest_or_recovered_a_store_is_the_same(rng: random.Random) -> None:
    """The twin: the same disk without its note is recovered, and shows the same."""
    for _ in range(30):
        disk = SimDisk()
        store = opened(disk)
        number = 0
        for _ in range(rng.randrange(12)):
            match rng.randrange(5):
                case 0:
                    store.skip_to("Trade", 1, store.reads.max_queue_offset("Trade", 1) + 20)
                case 1:
                    store.prepare_next()
                case 2:
                    store.expire(RetentionPolicy(max_bytes=5000), DiskUse(0, 1 << 40))
                case _:
                    count = rng.randrange(1, 9)
                    messages = [message(number + at) for at in range(count)]
                    store.put(messages, rng.randrange(2))
                    number += count
            CLOCK.now_ms += rng.choice([0, 5000])
        store.flush(everything=True)
        assert store.rest()
        shown = facts(store)
        kill(store)
        again = opened(disk)
        assert again.is_at_rest or has_a_gap_only(again)
        assert facts(again) == shown
        kill(again)
        disk.write(MARK, b"4711")
        recovered = opened(disk)
        assert facts(recovered) == shown
        kill(recovered)


def has_a_gap_only(store: MessageStore) -> bool:
    """Whether a queue has lost all its messages to retention, so that no record tells its end."""
    reads = store.reads
    return any(
        reads.min_queue_offset(*name) == reads.max_queue_offset(*name) > 0
        for name in reads.queues()
    )


def facts(store: MessageStore) -> object:
    """All that a store shows, without counts of files and of calls.

    The index may have keys of removed messages, and recovery removes some of them.
    """
    check_whole(store)
    statistics = store.statistics()
    return (
        bodies(store),
        statistics.min_physical_offset,
        statistics.max_physical_offset,
        statistics.flushed_offset,
        [store.reads.min_queue_offset("Trade", queue_id) for queue_id in range(2)],
        [store.reads.max_queue_offset("Trade", queue_id) for queue_id in range(2)],
        store.last_store_timestamp_ms,
    )
