from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from mode.utils.queues import FlowControlEvent, ThrowableQueue
from support.nodes.batches import list_batch

from rocketray.runtime.process_logs.log_line import MessagePlace
from rocketray.topology.delivery.delivery import Delivery, split
from rocketray.topology.delivery.inbox import LEASE_LOOK_S, Hand, Inbox, TraceLimit
from rocketray.topology.values.failure_rules import FailureRules


def one(*queue_offsets: int) -> Delivery:
    (delivery,) = split(list_batch(queue_offsets), 1)
    return delivery


class Released:
    """Notes what is released."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.rules = FailureRules("g")

    def released(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def pass_damaged(self, delivery: Delivery, index: int, error: Exception) -> None:
        raise NotImplementedError

    def count_failure(
        self, reason: str, unheard: MessagePlace | None, *, is_decoding: bool
    ) -> None:
        raise NotImplementedError

    async def give_back(
        self, delivery: Delivery, index: int, reason: str, attempts: int | None = None
    ) -> str | None:
        raise NotImplementedError


def make() -> tuple[Inbox, ThrowableQueue]:
    queue = ThrowableQueue(maxsize=0, flow_control=FlowControlEvent())
    return Inbox(queue), queue


def test_an_unpassed_delivery_is_handed_out_again() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        first, second = one(1, 2), one(3)
        queue.force_put_nowait(first)
        queue.force_put_nowait(second)
        assert await inbox.next() is first
        first.cursor = 1
        assert await inbox.next() is first
        first.cursor = 2
        assert await inbox.next() is second

    asyncio.run(scenario())


def test_passed_and_withdrawn_deliveries_are_released() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        owner = Released()
        passed, withdrawn, last = one(1), one(2), one(3)
        for delivery in (passed, withdrawn, last):
            delivery.owner = owner
            queue.force_put_nowait(delivery)
        assert await inbox.next() is passed
        passed.cursor = 1
        withdrawn.is_withdrawn = True
        assert await inbox.next() is last
        assert owner.deliveries == [passed, withdrawn]

    asyncio.run(scenario())


def test_what_is_thrown_into_the_channel_ends_the_wait() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        waiting = asyncio.create_task(inbox.next())
        await asyncio.sleep(0)
        queue._throw(LookupError("stop"))
        with pytest.raises(LookupError):
            await waiting

    asyncio.run(scenario())


def test_a_wait_with_a_limit_loses_nothing() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        assert not await inbox.take_next(0.001)
        delivery = one(1)
        queue.force_put_nowait(delivery)
        assert await inbox.take_next(0.001)
        assert inbox.unpassed() == [delivery]

    asyncio.run(scenario())


def test_failures_in_a_row_are_counted_until_a_message_comes() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        assert [inbox.note_failure(), inbox.note_failure()] == [1, 2]
        queue.force_put_nowait(one(1, 2))
        await inbox.next()
        assert inbox.note_failure() == 1

    asyncio.run(scenario())


def test_nothing_is_handed_out_while_others_may_own_the_queue() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        delivery, is_leased = one(1, 2), [False]
        delivery.is_leased = lambda: is_leased[0]
        queue.force_put_nowait(delivery)
        waiting = asyncio.create_task(inbox.next())
        await asyncio.sleep(2 * LEASE_LOOK_S)
        assert not waiting.done()
        is_leased[0] = True
        assert await waiting is delivery
        is_leased[0] = False
        delivery.is_withdrawn = True
        await inbox.until_leased()
        assert inbox.unpassed() == []

    asyncio.run(scenario())


def test_the_deliveries_of_a_queue_that_rests_wait_and_others_go_before_them() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        resting, behind = one(1), one(2)
        (other,) = split(list_batch([1], queue_id=1), 1)
        for delivery in (resting, behind, other):
            queue.force_put_nowait(delivery)
        assert await inbox.next() is resting
        inbox.rest(resting, 0.05)
        assert await inbox.next() is other
        assert inbox.unpassed() == [other]
        other.cursor = 1
        assert await inbox.next() is resting  # as soon as it may
        resting.cursor = 1
        assert await inbox.next() is behind

    asyncio.run(scenario())


def test_a_rest_that_ends_while_the_inbox_looks_lets_nothing_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(*, as_list: bool) -> None:
        inbox, queue = make()
        failed, behind = one(1), one(2)
        queue.force_put_nowait(failed)
        queue.force_put_nowait(behind)
        assert await inbox.next() is failed
        await inbox.take_next()
        times = iter([0.0, 9.9, 10.1])  # at the failure, at the first look, and at all later ones
        monkeypatch.setattr(inbox, "_now", lambda: next(times, 10.2))
        inbox.rest(failed, 10.0)
        assert not as_list or inbox.unpassed() == []
        assert await inbox.next() is failed

    asyncio.run(scenario(as_list=False))
    asyncio.run(scenario(as_list=True))


def test_a_lease_that_is_renewed_while_the_inbox_looks_lets_nothing_pass() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        first, behind = one(1), one(2)
        answers = iter([False])
        for delivery in (first, behind):
            delivery.is_leased = lambda: next(answers, True)  # renewed by another thread
            queue.force_put_nowait(delivery)
        await inbox.take_next()
        await inbox.take_next()
        assert await inbox.next() is first

    asyncio.run(scenario())


def test_a_queue_that_rests_and_is_taken_away_is_released() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        owner = Released()
        first, second = one(1), one(2)
        (other,) = split(list_batch([1], queue_id=1), 1)
        for delivery in (first, second, other):
            delivery.owner = owner
            queue.force_put_nowait(delivery)
        inbox.rest(await inbox.next(), 60)
        assert await inbox.next() is other
        second.is_withdrawn = True
        assert await inbox.next() is other
        assert owner.deliveries == [second]

    asyncio.run(scenario())


def test_a_hand_that_blames_finishes_what_stood_before() -> None:
    first, second, third = one(1, 2), one(3, 4), one(5)
    hand = Hand([(first, 0, 2), (second, 0, 2), (third, 0, 1)], is_list=True, skipped={(first, 1)})
    assert hand.blame(4) is None
    assert hand.blame(-1) is None
    assert first.cursor == 0
    assert hand.blame(2) is second  # values 0 to 3 are the messages 1, 3, 4 and 5
    assert (first.cursor, second.cursor, third.cursor) == (2, 1, 0)


def test_what_is_withdrawn_behind_a_queue_without_a_lease_is_dropped_and_the_loop_goes_on() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        owner = Released()
        waiting, withdrawn = one(1), one(2)
        (last,) = split(list_batch([1], queue_id=1), 1)
        for delivery in (waiting, withdrawn):
            delivery.owner = owner
            queue.force_put_nowait(delivery)
            await inbox.take_next()
        waiting.is_leased = lambda: False
        withdrawn.is_withdrawn = True
        queue.force_put_nowait(last)
        assert await inbox.next() is last
        assert owner.deliveries == [withdrawn]

    asyncio.run(scenario())


def raised(text: str) -> ValueError:
    try:
        float(f"no number: {text}")
    except ValueError as error:
        return error
    raise AssertionError


def raised_elsewhere(text: str) -> ValueError:
    try:
        float(f"no number: {text}")
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.proves("delivery", "Tracebacks are logged ever less often")
def test_a_kind_of_failure_is_traced_once_and_then_ever_more_seldom() -> None:
    limit = TraceLimit()
    traced = [now for now in range(5 * 3600) if limit.allows(raised(str(now)), now)]
    pauses = [after - before for before, after in pairwise(traced)]
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_another_type_and_another_line_are_another_kind() -> None:
    limit = TraceLimit()
    others = [raised("a"), raised_elsewhere("a"), KeyError("a"), KeyError("b")]
    assert [limit.allows(error, 0) for error in others] == [True, True, True, False]


def test_what_it_remembers_is_bounded() -> None:
    limit = TraceLimit()
    kinds = [type(f"Kind{number}", (Exception,), {}) for number in range(1000)]
    assert all(limit.allows(kind(), 0) for kind in kinds)
    assert len(limit._next) < 100
    assert not limit.allows(kinds[-1](), 0)
    assert limit.allows(kinds[0](), 0), "it was forgotten"
