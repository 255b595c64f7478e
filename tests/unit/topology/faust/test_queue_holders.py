from __future__ import annotations

from support.nodes.part_holders import PartHolder

from rocketray.topology.faust.queue_holders import QueueHolders

A, B = PartHolder(), PartHolder()


def test_a_queue_is_gained_with_its_first_holder_and_lost_with_its_last() -> None:
    ownership = QueueHolders()
    ownership.hold(A, [0, 1])
    ownership.hold(B, [1, 2])
    assert ownership.owned() == [0, 1, 2]
    assert ownership.release(A, [0, 1]) == {0}
    assert ownership.release(B, [1]) == {1}
    assert ownership.owned() == [2]


def test_holding_twice_and_releasing_twice_change_nothing() -> None:
    ownership = QueueHolders()
    ownership.hold(A, [0])
    ownership.hold(A, [0])
    assert ownership.release(B, [0]) == set()
    assert ownership.release(A, [0]) == {0}
    assert ownership.release(A, [0]) == set()
