"""Units that a writer begins and ends to add: each is its own message's, and none is lost track of."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, read_all

from rocketray.base.property_string import decode_properties
from rocketray.hashing import tags_code
from rocketray.message import Message
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

HISTORIES = 10
STEPS = 30
CONFIG = replace(SMALL, consume_queue_ext_segment_bytes=1024)
EXT = Path("consumequeue_ext", "T", "0")


class Numbers:
    """Bitmaps that tell messages apart: the number that is their property n."""

    def bitmaps(
        self,
        _topic: str,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8] | None:
        strings = [data[start : start + size].tobytes() for start, size in zip(starts, sizes)]  # noqa: B905 - arrays
        numbers = [number_of(decode_properties(string)["n"]) for string in strings]
        return np.array([list(number) for number in numbers], np.uint8)


def number_of(text: str) -> bytes:
    return int(text).to_bytes(14, "big")


def opened(directory: Path) -> MessageStore:
    """As a shard opens it: without units, until somebody says so. The time stands still."""
    config = None if (directory / "store.json").exists() else CONFIG
    return MessageStore(directory, config, clock_ms=FakeClock(), adds_units=False)


def put(store: MessageStore, rng: random.Random, count: int) -> None:
    """Messages of one time and mostly without a tag, so that only their numbers tell them apart."""
    store.put(
        [
            Message(
                "T",
                b"x",
                tags=rng.choice((None, None, "a")),
                properties={"n": str(rng.randrange(1, 1 << 60))},
            )
            for _ in range(count)
        ],
        0,
    )


def units_of(store: MessageStore) -> list[bool]:
    """Which entries have a unit; it says what their message does."""
    check_whole(store)
    found = []
    for one in read_all(store, "T", 0):
        entry = store.reads.queue_entry("T", 0, one.queue_offset)
        assert entry.tags_code == tags_code(one.tags)
        found.append(entry.unit is not None)
        if entry.unit is not None:
            assert entry.unit[:2] == (tags_code(one.tags), one.store_timestamp_ms)
            assert entry.unit.bitmap in (None, number_of(one.properties["n"]))
    return found


def lose_entries(directory: Path, rng: random.Random) -> None:
    """Zero the end of the queue, as where only the units reached the disk."""
    for path in sorted((directory / "consumequeue" / "T" / "0").iterdir())[-2:]:
        raw = path.read_bytes()
        end = len(raw.rstrip(b"\0"))
        end -= min(end, 20 * rng.randint(0, 5))
        path.write_bytes(raw[: end - end % 20].ljust(len(raw), b"\0"))


def test_units_begin_and_end_in_a_store_that_was_made_without(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path) as store:
        put(store, rng, 3)
        store.begin_units(Numbers())
        put(store, rng, 3)
        store.end_units()
        put(store, rng, 3)
        wanted = [False] * 3 + [True] * 3 + [False] * 3
        assert units_of(store) == wanted
    with opened(tmp_path) as store:
        assert store.config.consume_queue_ext
        put(store, rng, 1)
        store.begin_units(Numbers())
        put(store, rng, 1)
        assert units_of(store) == [*wanted, False, True]
    with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as store:
        assert units_of(store) == [*wanted, False, True]


def test_a_crash_leaves_every_unit_to_its_own_message(rng: random.Random, tmp_path: Path) -> None:
    with_unit = total = 0
    for history in range(HISTORIES):
        directory = tmp_path / str(history)
        store = opened(directory)
        for _ in range(STEPS):
            kind = rng.random()
            if kind < 0.4:
                put(store, rng, rng.randint(1, 6))
            elif kind < 0.6:
                store.begin_units(Numbers())
            elif kind < 0.7:
                store.end_units()
            elif kind < 0.75:
                store.flush(everything=True)
            else:
                kill(store)
                if rng.random() < 0.5 and (directory / "consumequeue").exists():
                    lose_entries(directory, rng)
                adds = rng.random() < 0.2 and (directory / EXT).exists()
                if adds:  # a command that repairs the directory knows no filters
                    MessageStore(directory, salvage=Salvage.ALL, clock_ms=FakeClock()).close()
                store = opened(directory)
            found = units_of(store)
        with_unit += sum(found)
        total += len(found)
        store.close()
    assert 0.1 * total < with_unit < 0.9 * total


def test_files_of_units_go_with_the_entries_that_lead_into_them(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path) as store:
        store.begin_units(Numbers())
        put(store, rng, 10)
        for _ in range(8):
            put(store, rng, 10)
        files = len(list((tmp_path / EXT).iterdir()))
        assert files > 2
        store.end_units()
        for _ in range(20):
            put(store, rng, 10)
        store.flush(everything=True)
        store.expire(
            RetentionPolicy(None, 3 * CONFIG.commit_log_segment_bytes), DiskUse(0, 1 << 40)
        )
        assert not any(units_of(store))
        assert len(list((tmp_path / EXT).iterdir())) == 1
        store.begin_units(Numbers())
        put(store, rng, 10)
        assert units_of(store)[-10:] == [True] * 10
