"""The node that users test with: everything follows at once, and time is the test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.broker.filtering.filtered_lag import Exactness
from rocketray.errors import ConfigError, PredicateError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.message import Message, StoredMessage
from rocketray.messaging.api.node_client import lag_of
from rocketray.store.retention import RetentionPolicy
from rocketray.testing import Broker, Clock, Member

ALL = Subscription.tags("*")


def take(member: Member, *, commit: bool = True) -> list[StoredMessage]:
    """What waits for *member* now."""
    found = []
    for batch in member.poll():
        found += batch.messages()
        if commit:
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return found


def send(broker: Broker, *bodies: bytes, topic: str = "orders", tags: str | None = None) -> None:
    with broker.producer() as producer:
        producer.send_many(topic, [Message(topic, body, tags) for body in bodies], queue_id=0)


def test_what_was_sent_waits_at_its_member_without_any_waiting(broker: Broker) -> None:
    broker.topics.ensure("orders", 1)
    member = broker.consumer("g", "orders", Subscription.tags("paid"))
    send(broker, b"1", tags="paid")
    send(broker, b"2", tags="open")
    assert [message.body for message in take(member)] == [b"1"]
    assert broker.committed("g", "orders") == {0: 2}


def test_predicates_are_asked_before_a_send_returns(tmp_path: Path) -> None:
    with Broker(tmp_path, predicates=["support.predicates"]) as broker:
        broker.topics.ensure("orders", 1)
        member = broker.consumer("g", "orders", Subscription.where("support.predicates:is_even"))
        send(broker, b"1", b"2")
        assert [message.body for message in take(member)] == [b"2"]
        with pytest.raises(PredicateError):
            broker.consumer("h", "orders", Subscription.where("os.path:exists"))


def test_messages_carry_the_time_of_the_clock(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("orders", 1)
    before = clock()
    send(broker, b"1")
    clock.advance(hours=1, seconds=0.5, milliseconds=1)
    send(broker, b"2")
    times = [(one.born_timestamp_ms, one.store_timestamp_ms) for one in broker.stored("orders")]
    later = before + 3_600_501
    assert times == [(before, before), (later, later)]
    assert [one.body for one in broker.messages.query_by_time("orders", later, later)] == [b"2"]


def test_time_does_not_pass_backwards_but_may_be_set(clock: Clock) -> None:
    before = clock()
    with pytest.raises(ValueError, match=r"Clock\.jump"):
        clock.advance(seconds=-1)
    clock.jump(seconds=-90)
    assert clock() == before - 90_000


def test_members_share_the_queues_when_time_passes(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("orders", 4)
    first, second = (broker.consumer("g", "orders", ALL, client_id=name) for name in "ab")
    assert (len(first.assignment()), len(second.assignment())) == (4, 0)
    for _ in range(3):
        clock.advance(seconds=1)
        take(first)
        take(second)
    assert (len(first.assignment()), len(second.assignment())) == (2, 2)
    assert not first.assignment() & second.assignment()
    first.close()
    clock.advance(seconds=1)
    take(second)
    assert len(second.assignment()) == 4


def test_living_members_stay_members_for_hours(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("orders", 2)
    members = [broker.consumer("g", "orders", ALL, client_id=name) for name in "ab"]
    for _ in range(3):
        clock.advance(seconds=1)
        for member in members:
            take(member)
    before = [member.assignment() for member in members]
    clock.advance(hours=6)
    for member in members:
        take(member)
    assert [member.assignment() for member in members] == before
    assert set(broker.groups.all()[0].members) == {"a", "b"}


def test_old_files_go_when_their_time_has_come(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("orders", 1, retention=RetentionPolicy(max_age_ms=3_600_000))
    big = bytes(3_000_000)
    for _ in range(4):
        send(broker, big)
    clock.advance(minutes=59)
    send(broker, b"newest")
    assert len(broker.stored("orders")) == 5
    clock.advance(minutes=2)
    assert len(broker.stored("orders")) == 3  # those of the newest file


def test_queries_answer_as_those_of_a_client(broker: Broker) -> None:
    broker.topics.ensure("orders", 2)
    with broker.producer() as producer:
        sent = producer.send("orders", b"1", keys=["k-1"], tags="paid")
    (found,) = broker.messages.query("orders", "k-1")
    assert broker.messages.view(sent.offset_message_id) == found
    assert broker.messages.view(sent.offset_message_id[:-1] + "F") is None
    assert broker.messages.at("orders", sent.queue_id, 0) == found
    assert [one.max_queue_offset for one in broker.node.shard_statistics("orders")] == [1, 0]
    broker.consumer("g", "orders", Subscription.tags("open"))
    assert broker.explain("k-1", "g").cause.value == "tag_mismatch"
    with pytest.raises(TopicNotFoundError):
        broker.messages.query("other", "k-1")


def test_the_lag_counts_what_the_filter_lets_through(broker: Broker) -> None:
    broker.topics.ensure("orders", 1)
    member = broker.consumer("g", "orders", Subscription.tags("paid"))
    send(broker, b"1", b"2", b"3", tags="paid")
    send(broker, b"4", b"5")
    (lag,) = lag_of(broker.node, broker.groups.all()[0]).values()
    assert (lag.count, lag.diff, lag.exactness) == (3, 5, Exactness.EXACT)
    member.commit("orders", 0, 2)
    assert broker.lag_of("g") == 1


def test_a_misspelt_group_has_no_lag_of_zero(broker: Broker) -> None:
    broker.topics.ensure("orders", 1)
    with pytest.raises(ConfigError, match=r"no member of a group 'shop-charge' has joined$"):
        broker.lag_of("shop-charge")
    broker.consumer("shop-charge", "orders", Subscription.tags("paid"))
    with pytest.raises(
        ConfigError, match=r"'shop-chrage' has joined; did you mean 'shop-charge'\?"
    ):
        broker.lag_of("shop-chrage")


def test_topics_change_as_on_a_node(broker: Broker) -> None:
    broker.topics.ensure("orders", 1)
    assert broker.topics.ensure("orders", 3).queues == 1
    assert broker.topics.alter("orders", 2).queues == 2
    send(broker, b"1")
    broker.topics.set_permission("orders", 4)
    with pytest.raises(ValueError, match="--perm 6"):
        send(broker, b"2")
    broker.topics.delete("orders")
    assert broker.topics.all() == {}
    broker.topics.ensure("orders", 1)
    assert broker.stored("orders") == []


def test_what_one_broker_stored_another_reads(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.topics.ensure("orders", 1)
        send(broker, b"1", b"2")
        with broker.consumer("g", "orders", ALL) as member:
            member.poll()
            member.commit("orders", 0, 1)
    with Broker(tmp_path) as broker:
        broker.clock.advance(milliseconds=SESSION_TIMEOUT_MS)
        assert [one.body for one in take(broker.consumer("g", "orders", ALL))] == [b"2"]


def test_a_broker_without_a_directory_leaves_nothing_behind() -> None:
    with Broker() as broker:
        broker.topics.ensure("orders", 1)
        data = broker.data
        assert data.is_dir()
    assert not data.exists()
