"""A store against lists: whatever is put, flushed, reopened or killed, it holds what was put."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.harness.machines import run_histories
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message, read_all

from rocketray.base.property_string import decode_properties
from rocketray.hashing import tags_code
from rocketray.message import StoredMessage
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.pull import GetMessageStatus

QUEUES = [("Trade", 0), ("Trade", 1), ("%RETRY%group", 0)]


class OnlyTag:
    needs_record = True

    def __init__(self, tag: str | None) -> None:
        self._tag = tag

    def matches_entry(self, code: int | None, _unit: object) -> bool:
        return code == tags_code(self._tag)

    def matches_record(self, stored: StoredMessage) -> bool:
        return stored.tags == self._tag


class StoreAgainstLists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.model: dict[tuple[str, int], list[bytes]] = {queue: [] for queue in QUEUES}
        self.numbers = 0

    @initialize()
    def open(self) -> None:
        self.store = MessageStore(self.directory, SMALL, clock_ms=self.clock)

    @rule(
        queue=st.sampled_from(QUEUES),
        count=st.integers(1, 9),
        size=st.sampled_from([0, 20, 150]),
    )
    def put(self, queue: tuple[str, int], count: int, size: int) -> None:
        topic, queue_id = queue
        numbers = range(self.numbers, self.numbers + count)
        self.numbers += count
        messages = [message(number, topic, size) for number in numbers]
        placed = self.store.put(messages, queue_id)
        expected = self.model[queue]
        assert [one.queue_offset for one in placed] == list(
            range(len(expected), len(expected) + count)
        )
        for one, sent in zip(placed, messages, strict=True):
            stored = self.store.reads.view(one.physical_offset)
            assert stored.body == sent.body
            assert stored.properties == decode_properties(sent.encoded_properties())
            assert stored.store_timestamp_ms == one.store_timestamp_ms
            assert self.store.reads.view_by_id(stored.offset_message_id) == stored
        expected += [sent.body for sent in messages]

    @rule(milliseconds=st.sampled_from([-500, 1, 999, 7000]))
    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds

    @rule()
    def flush(self) -> None:
        assert (
            self.store.flush()
            == self.store.reads.max_physical_offset
            == self.store.reads.flushed_offset
        )

    @rule()
    def prepare(self) -> None:
        self.store.prepare_next()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()
        assert self.store.recovery is not None
        assert self.store.recovery.was_clean
        assert self.store.recovery.records_read == 0

    @rule()
    def kill_and_reopen(self) -> None:
        end = self.store.reads.max_physical_offset
        kill(self.store)
        self.open()
        assert self.store.recovery is not None
        assert not self.store.recovery.was_clean
        assert self.store.recovery.bytes_kept_aside == 0
        assert self.store.reads.max_physical_offset == end
        check_whole(self.store)

    @rule(queue=st.sampled_from(QUEUES), number=st.integers(0, 3), count=st.integers(1, 40))
    def read_by_tag(self, queue: tuple[str, int], number: int, count: int) -> None:
        tag = message(number).tags
        wanted = [
            (at, body)
            for at, body in enumerate(self.model[queue])
            if message(int(body[:8]) if body[:8].isdigit() else 0).tags == tag
        ]
        found = []
        at = 0
        while at < len(self.model[queue]):
            result = self.store.reads.get_message(*queue, at, count, OnlyTag(tag))
            assert len(result.messages) <= count
            assert result.next_queue_offset > at
            found += [(int(one.queue_offset), one.body) for one in result.messages]
            at = result.next_queue_offset
        assert found == wanted

    @rule(queue=st.sampled_from(QUEUES), offset=st.integers(-2, 60))
    def read_outside(self, queue: tuple[str, int], offset: int) -> None:
        size = len(self.model[queue])
        result = self.store.reads.get_message(*queue, offset, 5)
        if size == 0:
            expected = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
        elif offset < 0:
            expected = (GetMessageStatus.OFFSET_TOO_SMALL, 0)
        elif offset == size:
            expected = (GetMessageStatus.OFFSET_OVERFLOW_ONE, size)
        elif offset > size:
            expected = (GetMessageStatus.OFFSET_OVERFLOW_BADLY, size)
        else:
            expected = (GetMessageStatus.FOUND, min(offset + 5, size))
        assert (result.status, result.next_queue_offset) == expected

    @rule(queue=st.sampled_from(QUEUES), back_ms=st.integers(-2, 20_000))
    def find_by_time(self, queue: tuple[str, int], back_ms: int) -> None:
        at = self.clock.now_ms - back_ms
        times = [one.store_timestamp_ms for one in read_all(self.store, *queue)]
        assert times == sorted(times)
        lower = self.store.reads.queue_offset_by_time(*queue, at)
        assert lower == sum(time < at for time in times)
        upper = self.store.reads.queue_offset_by_time(*queue, at, "upper")
        assert upper == max(sum(time <= at for time in times) - 1, 0)

    @invariant()
    def holds_what_was_put(self) -> None:
        if hasattr(self, "store"):
            for queue, bodies in self.model.items():
                assert self.store.reads.min_queue_offset(*queue) == 0
                assert self.store.reads.max_queue_offset(*queue) == len(bodies)
                assert [one.body for one in read_all(self.store, *queue)] == bodies

    def teardown(self) -> None:
        if hasattr(self, "store"):
            check_whole(self.store)
            self.store.close()
        shutil.rmtree(self.directory)


def test_a_store_against_lists(seed: int, amount: Callable[[int], int]) -> None:
    run_histories(StoreAgainstLists, seed, amount(25), 25)
