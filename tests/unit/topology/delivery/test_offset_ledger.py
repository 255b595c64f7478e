from __future__ import annotations

import pytest
from support.nodes.batches import list_batch

from rocketray.topology.delivery.delivery import Delivery, split
from rocketray.topology.delivery.offset_ledger import OffsetLedger


def add(
    ledger: OffsetLedger, *queue_offsets: int, end: int, queue_id: int = 0, parts: int = 1
) -> list[Delivery]:
    deliveries = split(list_batch(queue_offsets, end, queue_id), parts)
    for delivery in deliveries:
        ledger.add(delivery)
    return deliveries


def commit(ledger: OffsetLedger) -> list[tuple[int, int]]:
    """Commit all that is finished; what that was."""
    moved = ledger.advance()
    assert all(ledger.commit(*each) for each in moved)
    return moved


def finish(delivery: Delivery) -> None:
    delivery.cursor = delivery.stop


def test_a_queue_is_committed_once_per_move() -> None:
    ledger = OffsetLedger()
    (delivery,) = add(ledger, 5, 6, end=7)
    assert commit(ledger) == [(0, 5)]
    assert commit(ledger) == []
    delivery.cursor = 1
    assert commit(ledger) == [(0, 6)]
    finish(delivery)
    assert commit(ledger) == [(0, 7)]
    assert commit(ledger) == []
    assert list(ledger.outstanding()) == []


def test_a_younger_delivery_does_not_pass_an_older_one() -> None:
    ledger = OffsetLedger()
    (old,) = add(ledger, 0, 1, end=2)
    (young,) = add(ledger, 2, 3, end=4)
    finish(young)
    assert commit(ledger) == [(0, 0)]
    finish(old)
    assert commit(ledger) == [(0, 4)]


def test_parts_of_one_batch_that_finish_out_of_order() -> None:
    ledger = OffsetLedger()
    first, second, third, fourth = add(ledger, 0, 1, 2, 3, end=9, parts=2)
    finish(second)
    finish(fourth)
    assert commit(ledger) == [(0, 0)]
    finish(first)
    assert commit(ledger) == [(0, 2)]
    finish(third)
    assert commit(ledger) == [(0, 9)]


def test_queues_are_independent() -> None:
    ledger = OffsetLedger()
    (zero,) = add(ledger, 0, end=1)
    add(ledger, 100, end=101, queue_id=1)
    finish(zero)
    assert sorted(commit(ledger)) == [(0, 1), (1, 100)]


def test_an_empty_batch_moves_its_queue_when_all_before_it_is_finished() -> None:
    ledger = OffsetLedger()
    (delivery,) = add(ledger, 0, end=1)
    add(ledger, end=50)
    assert commit(ledger) == [(0, 0)]
    finish(delivery)
    assert commit(ledger) == [(0, 50)]


def test_a_queue_that_was_taken_away_may_come_back_further_behind() -> None:
    ledger = OffsetLedger()
    (delivery,) = add(ledger, 10, end=11)
    finish(delivery)
    assert commit(ledger) == [(0, 11)]
    ledger.forget_queues([0])
    add(ledger, 3, end=4)
    assert commit(ledger) == [(0, 3)]


def test_what_was_not_committed_is_told_again() -> None:
    ledger = OffsetLedger()
    (delivery,) = add(ledger, 5, end=6)
    finish(delivery)
    assert ledger.advance() == ledger.advance() == [(0, 6)]
    assert commit(ledger) == [(0, 6)]
    assert commit(ledger) == []


def test_an_older_commit_that_comes_late_does_not_take_a_queue_back() -> None:
    ledger = OffsetLedger()
    (delivery,) = add(ledger, 0, 1, 2, end=3)
    delivery.cursor = 1
    [early] = ledger.advance()
    finish(delivery)
    assert commit(ledger) == [(0, 3)]
    assert not ledger.commit(*early)


@pytest.mark.parametrize(("first", "end"), [(20, 30), (0, 5)])
def test_what_was_finished_before_a_queue_was_given_up_is_not_committed_when_it_came_back(
    first: int, end: int
) -> None:
    ledger = OffsetLedger()
    (delivery,) = add(ledger, 10, end=11)
    finish(delivery)
    [told] = ledger.advance()
    ledger.forget_queues([0])
    assert not ledger.commit(*told)
    (delivery,) = add(ledger, first, end=end)
    finish(delivery)
    assert ledger.advance() == [(0, end)]
    assert not ledger.commit(*told)
    assert commit(ledger) == [(0, end)]
