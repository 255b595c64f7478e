"""Compaction against a dictionary: whatever is put, compacted or killed, the last values stay."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.nodes.stores import SMALL, kill

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards.compaction import Compaction
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.message import SHARDING_KEY, Message
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.reading.reader import QueueReader
from rocketray.store.retention import DiskUse

TOPIC = "app-table-changelog"
CONFIG = replace(SMALL, consume_queue_segment_entries=20)
DISK = DiskUse(0, 1 << 40)


class PowerCut(Exception):  # noqa: N818 - no error of anyone's
    """The process ends here."""


class Changelog:
    """A shard that may be killed at any step of a compaction, and what its table should be."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.table: dict[str, bytes] = {}
        self.written = 0
        self._open()

    def _open(self) -> None:
        self.writer = ShardWriter(self._directory, TOPIC, 0, CONFIG, clock_ms=lambda: 1000)
        self._compaction = Compaction(self.writer, TOPIC, 0)

    def put(self, changes: list[tuple[str, bytes | None]]) -> None:
        messages = [
            Message(TOPIC, value or b"", properties={SHARDING_KEY: key}, unique_key=f"{n:032d}")
            for n, (key, value) in enumerate(changes)
        ]
        batch = encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
        self.writer.append(pack_batch(batch), Durability.MEMORY)
        for key, value in changes:
            self.written += 1
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    def compact(
        self, steps: int | None = None, *, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """A round, cut short before its step number *steps*; *meanwhile* comes before each copy."""
        left = itertools.count() if steps is None else iter(range(steps))
        store = self.writer.store

        def may_end(step: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any, **options: Any) -> Any:
                if next(left, None) is None:
                    raise PowerCut
                if meanwhile is not None and step.__name__ == "append_built":
                    meanwhile()
                return step(*arguments, **options)

            return run

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.writer, "append_built", may_end(self.writer.append_built))
            patch.setattr(store, "flush", may_end(store.flush))
            for name in ("forget_before", "remove_forgotten"):
                patch.setattr(type(store._files), name, may_end(getattr(type(store._files), name)))
            try:
                self._compaction.run(DISK)
            except PowerCut:
                kill(store)
        if store._closed:
            self._open()

    def held(self) -> dict[str, bytes]:
        """What the log says, from its minimum to its end."""
        store = self.writer.store
        start, end = store.reads.min_queue_offset(TOPIC, 0), store.reads.max_queue_offset(TOPIC, 0)
        with QueueReader(self._directory, TOPIC, 0) as reader:
            messages = reader.messages(reader.entries(start, end)) if end > start else []
        found = {one.properties[SHARDING_KEY]: one.body for one in messages}
        return {key: body for key, body in found.items() if body}

    def size(self) -> int:
        statistics = self.writer.store.statistics()
        return statistics.max_physical_offset - statistics.min_physical_offset


CHANGES = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.none() | st.binary(min_size=1, max_size=200)),
    min_size=1,
    max_size=8,
)
ROUNDS = st.lists(st.tuples(CHANGES, st.integers(1, 6), st.none() | st.integers(0, 8)), max_size=5)
ONE_KEY = [([("a", b"x" * 200)] * 9, 3, steps) for steps in range(9)]


@pytest.mark.proves(
    "retention",
    "Compaction keeps the last message of each key, even if the writer dies",
)
@settings(max_examples=30, deadline=None)
@given(ROUNDS)
@example(ONE_KEY)
def test_the_last_value_of_each_key_stays_though_the_writer_dies_at_any_step(
    rounds: list[tuple[list[tuple[str, bytes | None]], int, int | None]],
) -> None:
    directory = Path(tempfile.mkdtemp())
    log = Changelog(directory)
    for changes, times, steps in rounds:
        for _ in range(times):
            log.put(changes)
        log.compact(steps)
        assert log.held() == log.table
    log.compact()
    assert log.held() == log.table
    log.writer.close()
    shutil.rmtree(directory)


def test_what_changes_while_it_is_copied_is_not_overwritten(tmp_path: Path) -> None:
    log = Changelog(tmp_path)
    log.put([("kept", b"1"), ("changed", b"1"), ("deleted", b"1")])
    for number in range(40):
        log.put([("busy", b"%d" % number * 40)])
    log.compact(meanwhile=lambda: log.put([("changed", b"2"), ("deleted", None)]))
    assert log.writer.store.reads.min_queue_offset(TOPIC, 0) > 3
    assert log.held() == log.table
    assert log.table["changed"] == b"2"
    assert "deleted" not in log.table
    log.writer.close()


def test_a_log_is_at_most_twice_as_large_as_what_is_alive_and_two_files(tmp_path: Path) -> None:
    log = Changelog(tmp_path)
    for number in range(600):
        log.put([(f"k{number % 20}", b"v" * 100)])
        log.compact()
        alive = 20 * 250
        assert log.size() <= 2 * alive + 3 * CONFIG.commit_log_segment_bytes
    assert log.writer.store.reads.min_queue_offset(TOPIC, 0) > 400
    assert log.held() == log.table
    log.writer.close()


def test_a_log_of_which_all_is_alive_is_left_alone(tmp_path: Path) -> None:
    log = Changelog(tmp_path)
    for number in range(100):
        log.put([(f"k{number}", b"v" * 100)])
        log.compact()
    assert log.writer.store.reads.min_queue_offset(TOPIC, 0) == 0
    assert log.writer.store.reads.max_queue_offset(TOPIC, 0) == 100
    log.writer.close()


def test_messages_without_a_key_are_kept(tmp_path: Path) -> None:
    log = Changelog(tmp_path)
    batch = encode_messages(
        [Message(TOPIC, b"no key", unique_key="u")], born_host=("::1", 1), clock_ms=lambda: 1
    )
    log.writer.append(pack_batch(batch), Durability.MEMORY)
    for number in range(40):
        log.put([("busy", b"%d" % number * 40)])
    log.compact()
    assert log.writer.store.reads.min_queue_offset(TOPIC, 0) > 1
    assert [one.body for one in log.writer.store.reads.scan()].count(b"no key") == 1
    log.writer.close()


def test_a_shard_that_takes_no_messages_is_not_compacted(tmp_path: Path) -> None:
    log = Changelog(tmp_path)
    log.put([("kept", b"1")])
    for number in range(40):
        log.put([("busy", b"%d" % number * 40)])
    log.writer.appends.writable = False
    log.compact()
    assert log.writer.store.reads.min_queue_offset(TOPIC, 0) == 0
    log.writer.close()
