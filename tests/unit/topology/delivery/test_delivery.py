from __future__ import annotations

import pytest
from support.nodes.batches import list_batch, stored

from rocketray.message import Message
from rocketray.topology.delivery.delivery import Delivery, split
from rocketray.topology.values.shared_batch import SharedBatch
from rocketray.topology.values.wire import KEY_PROPERTIES, message_key


def delivery_of(*queue_offsets: int, end: int | None = None) -> Delivery:
    (delivery,) = split(list_batch(queue_offsets, end), 1)
    return delivery


def test_next_queue_offset_is_that_of_the_message_at_the_cursor() -> None:
    delivery = delivery_of(10, 14, 19, end=25)
    assert delivery.next_queue_offset() == 10
    delivery.cursor = 1
    assert delivery.next_queue_offset() == 14  # 11, 12 and 13 did not match, so they are done too
    delivery.cursor = 2
    assert not delivery.is_finished()
    assert delivery.next_queue_offset() == 19


def test_the_end_covers_entries_that_were_filtered_out_behind_the_last_match() -> None:
    delivery = delivery_of(10, 14, 19, end=25)
    delivery.cursor = 3
    assert delivery.is_finished()
    assert delivery.next_queue_offset() == 25


def test_an_empty_batch_is_finished_and_moves_the_queue_on() -> None:
    (delivery,) = split(list_batch([], 70), 1)
    assert len(delivery) == 0
    assert delivery.is_finished()
    assert delivery.next_queue_offset() == 70


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, 5, 100])
def test_split_covers_the_batch_without_overlap(parts: int, size: int) -> None:
    batch = list_batch(range(size), size + 3)
    deliveries = split(batch, parts)
    seen = [
        int(one.shared.bodies[index]) for one in deliveries for index in range(one.cursor, one.stop)
    ]
    assert seen == list(range(size))
    for one in deliveries:
        one.cursor = one.stop
    assert [one.next_queue_offset() for one in deliveries][-1] == size + 3
    assert all(one.is_finished() for one in deliveries)


def test_a_part_that_is_not_the_last_ends_where_the_next_begins() -> None:
    first, *rest = split(list_batch([5, 8, 9, 12, 20, 21, 22, 30]), 2)
    first.cursor = first.stop
    assert first.next_queue_offset() == rest[0].next_queue_offset() == 8


def test_manual_mode_goes_on_only_over_what_was_acknowledged() -> None:
    delivery = delivery_of(10, 11, 12, 13)
    delivery.acks.require(delivery.cursor)
    delivery.cursor = 4  # all handed out, none acknowledged
    assert delivery.is_passed
    assert delivery.next_queue_offset() == 10
    delivery.acks.acknowledge(2)
    assert delivery.next_queue_offset() == 10
    delivery.acks.acknowledge(0)
    assert delivery.next_queue_offset() == 11
    delivery.acks.acknowledge(1)
    assert delivery.next_queue_offset() == 13
    assert not delivery.is_finished()
    delivery.acks.acknowledge(3)
    assert delivery.is_finished()


@pytest.mark.proves("faust", "The commit does not pass an unacknowledged message")
@pytest.mark.parametrize("missing", [{6}, {6, 7}])
def test_messages_without_acknowledgement_hold_the_queue(missing: set[int]) -> None:
    """Faust commits over one missing acknowledgement and sticks at two."""
    delivery = delivery_of(*range(20))
    delivery.acks.require(delivery.cursor)
    for index in set(range(20)) - missing:
        delivery.acks.acknowledge(index)
    assert delivery.next_queue_offset() == 6


def test_manual_mode_counts_what_was_passed_before_as_acknowledged() -> None:
    delivery = delivery_of(10, 11, 12)
    delivery.cursor = 1
    delivery.acks.require(delivery.cursor)
    assert delivery.next_queue_offset() == 11


def test_what_goes_back_to_the_node_is_unfinished_until_it_is_there() -> None:
    delivery = delivery_of(10, 11, 12)
    delivery.acks.begin_return(1)
    delivery.cursor = 3
    assert delivery.is_passed
    assert (delivery.is_finished(), delivery.next_queue_offset()) == (False, 11)
    delivery.acks.begin_return(0)
    assert delivery.next_queue_offset() == 10
    delivery.acks.returned(0)
    delivery.acks.returned(1)
    assert (delivery.is_finished(), delivery.next_queue_offset()) == (True, 13)


def test_what_goes_back_is_as_good_as_acknowledged_once_it_is_there() -> None:
    delivery = delivery_of(10, 11)
    delivery.acks.require(delivery.cursor)
    delivery.acks.begin_return(0)
    delivery.acks.acknowledge(1)
    assert delivery.next_queue_offset() == 10
    delivery.acks.returned(0)
    assert delivery.is_finished()


def test_attempts_are_counted_per_message() -> None:
    delivery = delivery_of(10, 11)
    assert [delivery.attempts.note(delivery.cursor), delivery.attempts.note(delivery.cursor)] == [
        1,
        2,
    ]
    delivery.cursor = 1
    assert delivery.attempts.note(delivery.cursor) == 1


def test_messages_that_failed_together_come_as_batches_of_one() -> None:
    delivery = delivery_of(10, 11, 12, 13)
    delivery.alone_until = 2
    sizes = []
    while not delivery.is_passed:
        sizes.append(delivery.to_arrow(["body"]).num_rows)
        delivery.cursor = delivery.batch_end()
    assert sizes == [1, 1, 2]


def test_to_arrow_begins_at_the_cursor_and_ends_with_the_part() -> None:
    shared = SharedBatch(list_batch([3, 4, 5, 6]))
    delivery = Delivery(shared, 1, 3)
    delivery.cursor = 2
    assert delivery.to_arrow(["queueOffset"]).column(0).to_pylist() == [5]


def test_the_key_is_the_sharding_key_or_else_the_first_business_key() -> None:
    def key(**properties: str) -> bytes | None:
        found = Message("T", b"", keys=["k 1", "k2"], properties=properties)
        return message_key(*map(stored(found, 0, 0).properties.get, KEY_PROPERTIES))

    assert key() == b"k 1"
    assert key(__SHARDINGKEY="s") == b"s"
    assert message_key(None, None, None) is None
