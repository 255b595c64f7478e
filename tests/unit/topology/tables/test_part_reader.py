from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.patience import patience
from support.nodes.batches import stored

from rocketray.broker.topics.ownership_record import OWNERSHIP_KEY, ownership_record
from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import SHARDING_KEY, Message, StoredMessage
from rocketray.topology.tables import part_reader
from rocketray.topology.tables.part_reader import PartReader

if TYPE_CHECKING:
    from rocketray.broker.topics.queue_tail import QueueTail


class Log:
    """A changelog in memory, of (key, value); compaction may come before any reading.

    The key of an ownership record stands for one, and its value for the epoch.
    """

    def __init__(self, changes: Sequence[tuple[str, int | None]] = ()) -> None:
        self.changes = list(changes)
        self.start = 0
        self.compactions: list[int] = []
        self.lost: set[int] = set()
        """Offsets without a message: recovery found them lost."""

    def minimum(self) -> int:
        return self.start

    def end(self) -> int:
        return len(self.changes)

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        if self.compactions:
            self.compact(self.compactions.pop())
        if start < self.start:
            raise OffsetOutOfRangeError("log", start, self.start, self.end())
        found = [
            stored(
                ownership_record("C", value or 1)
                if key == OWNERSHIP_KEY
                else Message(
                    "C",
                    b"" if value is None else str(value).encode(),
                    properties={SHARDING_KEY: key},
                ),
                0,
                start + number,
            )
            for number, (key, value) in enumerate(self.changes[start:])
        ]
        return [one for one in found if one.queue_offset not in self.lost][:max_count]

    def close(self) -> None:
        pass

    def compact(self, below: int) -> None:
        """Write what is alive below an offset again, and delete what was there."""
        below = min(below, len(self.changes))
        if below <= self.start:
            return
        latest = {key: (offset, value) for offset, (key, value) in enumerate(self.changes)}
        for key, (offset, value) in latest.items():
            if offset < below and value is not None:
                self.changes.append((key, value))
        self.start = below

    def table(self) -> dict[str, int]:
        """What the log says."""
        latest = dict(self.changes[self.start :])
        latest.pop(OWNERSHIP_KEY, None)
        return {key: value for key, value in latest.items() if value is not None}


class Part:
    """A part of a table, and what a store of it would have kept."""

    def __init__(self, log: Log) -> None:
        self.values: dict[str, int] = {}
        self.reader = PartReader(
            "t", cast("QueueTail", log), apply=self.apply, drop=self.values.clear
        )

    async def apply(self, changes: list[StoredMessage]) -> None:
        for change in changes:
            key = change.properties[SHARDING_KEY]
            if change.body:
                self.values[key] = int(change.body)
            else:
                self.values.pop(key, None)


CHANGES = st.lists(
    st.tuples(st.sampled_from([*"abcd", OWNERSHIP_KEY]), st.none() | st.integers(0, 9)),
    min_size=1,
    max_size=30,
)


@given(CHANGES, st.integers(1, 7), st.lists(st.integers(0, 40), max_size=4), st.integers(0, 30))
def test_a_part_is_what_its_changelog_says_though_files_go_while_it_is_read(
    changes: list[tuple[str, int | None]], batch: int, compactions: list[int], persisted: int
) -> None:
    async def scenario() -> None:
        log = Log(changes)
        part = Part(log)
        kept: int | None = None
        if persisted < len(changes):  # a store kept the table up to there
            kept = persisted
            part.values.update(Log(changes[: persisted + 1]).table())
        log.compactions = list(compactions)
        await part.reader.recover(kept)
        await part.reader.catch_up()
        assert part.values == log.table()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_reader, "READ_MAX_MESSAGES", batch)
        asyncio.run(scenario())


def test_what_is_kept_beyond_the_end_of_the_changelog_is_dropped() -> None:
    async def scenario() -> None:
        part = Part(Log([("a", 1)]))
        part.values["stale"] = 1
        await part.reader.recover(persisted=7)
        assert part.values == {"a": 1}

    asyncio.run(scenario())


def test_what_was_written_here_is_not_read_again() -> None:
    async def scenario() -> None:
        log = Log([("a", 1)])
        part = Part(log)
        assert await part.reader.recover() == 1
        log.changes.append(("a", 2))
        await part.reader.skip_to_end()
        assert await part.reader.catch_up() == 0
        log.changes.append(("b", 3))
        assert await part.reader.catch_up() == 1
        assert part.values == {"a": 1, "b": 3}

    asyncio.run(scenario())


def test_offsets_without_a_message_are_passed_over() -> None:
    async def scenario() -> None:
        log = Log([("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)])
        log.lost = {0, 2, 4}
        part = Part(log)
        async with asyncio.timeout(patience(20)):
            assert await part.reader.recover() == 2
        assert part.values == {"b": 2, "d": 4}
        log.changes.append(("f", 6))
        assert await part.reader.catch_up() == 1

    asyncio.run(scenario())
