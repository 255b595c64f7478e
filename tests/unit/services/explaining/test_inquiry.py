"""What a group went past, and why, is told by its journal and not guessed from what holds today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.transactions import begin

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import HALF_TOPIC, SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import retry_topic, sent_back
from rocketray.filters.subscription import Subscription
from rocketray.groups.journal.group_journal import EntryKind
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.files.paths import journal_directory
from rocketray.services.admin.seeking import carry_out, plan_moves
from rocketray.services.explaining.cause import Cause
from rocketray.store.retention import RetentionPolicy
from rocketray.testing import Broker, Clock

ALL, PAY, SHIP = (Subscription.tags(tags) for tags in ("*", "pay", "ship"))
WHO = "rocketray groups skip by me on here"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker(tmp_path, clock=clock, predicates=["support"]) as node:
        node.topics.ensure("Trade", 1)
        yield node


def send(broker: Broker, *keys: str, tags: str = "pay", topic: str = "Trade") -> None:
    with broker.producer() as producer:
        for key in keys:
            producer.send(topic, b"body", tags=tags, keys=key)


def consume(broker: Broker, subscription: Subscription = ALL, topic: str = "Trade") -> list[str]:
    """A member takes and finishes what is there; the keys that it got."""
    found: list[str] = []
    with broker.consumer("g", topic, subscription) as member:
        while batches := member.poll():
            for batch in batches:
                found += [key for message in batch.messages() for key in message.keys]
                member.commit(topic, batch.queue_id, batch.next_queue_offset)
    return found


def move(broker: Broker, **goal: object) -> None:
    groups = [each for each in broker.groups.all() if each.group == "g" and each.topic == "Trade"]
    moves = plan_moves(broker.node, groups, **goal)  # type: ignore[arg-type]
    carry_out(broker.groups, moves, 0.0, sleep=lambda _: None, who=WHO)


def cause(broker: Broker, wanted: str, group: str = "g") -> Cause:
    return broker.explain(wanted, group).cause


def told(broker: Broker, wanted: str, group: str = "g") -> str:
    return "\n".join(step.detail for step in broker.explain(wanted, group).steps)


# E1


def test_what_somebody_skipped_was_not_delivered(broker: Broker) -> None:
    send(broker, "had")
    consume(broker)
    send(broker, "skipped", "sought")
    move(broker, offset=2)
    move(broker, to="latest")
    send(broker, "after")
    assert consume(broker) == ["after"]
    causes = [cause(broker, key) for key in ("had", "skipped", "sought", "after")]
    assert causes == [Cause.DELIVERED, Cause.SKIPPED, Cause.SKIPPED, Cause.DELIVERED]
    assert "the group's offset was moved past it, at 2027-01-15T08:00:" in told(broker, "sought")
    assert WHO in told(broker, "sought")
    assert broker.explain("sought", "g").to_json()["cause"] == "skipped"


def test_what_was_skipped_and_is_asked_for_again_comes_again(broker: Broker) -> None:
    send(broker, "a", "b")
    consume(broker)
    send(broker, "c")
    move(broker, to="latest")
    move(broker, to="earliest")
    assert [cause(broker, key) for key in "ac"] == [Cause.NO_CONSUMER, Cause.NO_CONSUMER]
    assert "the group got it before" in told(broker, "a")
    assert "the group got it before" not in told(broker, "c")
    assert consume(broker) == ["a", "b", "c"]
    assert [cause(broker, key) for key in "ac"] == [Cause.DELIVERED, Cause.DELIVERED]


# E2, E3


def test_a_filter_is_asked_for_what_the_group_passed_with_it(broker: Broker) -> None:
    send(broker, "p1", tags="pay")
    send(broker, "s1", tags="ship")
    assert consume(broker, PAY) == ["p1"]
    send(broker, "p2", tags="pay")
    send(broker, "s2", tags="ship")
    assert consume(broker, SHIP) == ["s2"]
    causes = [cause(broker, key) for key in ("p1", "s1", "p2", "s2")]
    expected = [Cause.DELIVERED, Cause.TAG_MISMATCH, Cause.TAG_MISMATCH, Cause.DELIVERED]
    assert causes == expected
    assert "when the group read that offset, it subscribed to tags 'pay'" in told(broker, "s1")
    broker.faults.restart_coordinator()
    assert [cause(broker, key) for key in ("p1", "s1", "p2", "s2")] == expected


def test_a_filter_that_switches_in_a_queue_holds_from_there_on(broker: Broker) -> None:
    send(broker, "p1", "p2", tags="pay")
    with broker.consumer("g", "Trade", PAY, client_id="old") as old:
        [batch] = old.poll()
        old.commit("Trade", 0, 2)
        broker.groups.prepare_change("g", "Trade", SHIP)
        old.beat()
        old.beat()
        broker.groups.switch_change("g", "Trade")
        for _ in range(3):
            old.beat()
            old.poll()
        send(broker, "p3", tags="pay")
        send(broker, "s3", tags="ship")
        [batch] = old.poll()
        assert [message.keys for message in batch.messages()] == [["s3"]]
        old.commit("Trade", 0, batch.next_queue_offset)
    causes = [cause(broker, key) for key in ("p1", "p2", "p3", "s3")]
    assert causes == [Cause.DELIVERED, Cause.DELIVERED, Cause.TAG_MISMATCH, Cause.DELIVERED]


# E4


def test_a_group_that_began_behind_and_was_reset_has_what_it_then_got(broker: Broker) -> None:
    send(broker, "a", "b")
    with broker.consumer("g", "Trade", ALL, start="latest", client_id="m1") as member:
        member.poll()
        member.beat()
        assert cause(broker, "a") is Cause.BEFORE_START
        assert "by m1" in told(broker, "a")
    move(broker, to="earliest")
    assert consume(broker) == ["a", "b"]
    assert cause(broker, "a") is Cause.DELIVERED


# E5


def test_a_retry_is_looked_for_in_the_queue_that_it_lies_in(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("Wide", 3)
    broker.topics.ensure(SCHEDULE_TOPIC, len(DELAY_LEVELS_MS), internal=True)
    broker.topics.ensure(retry_topic("g"), 3, internal=True)
    with broker.producer() as producer:
        for queue_id in (0, 2):
            producer.send("Wide", b"", keys=f"k{queue_id}", queue_id=queue_id)
    consume(broker, topic="Wide")
    for key in ("k0", "k2"):
        [message] = broker.messages.query("Wide", key)
        back = sent_back(message, "g", 16, "%DLQ%g", 3)
        with broker.producer() as producer:
            producer.forward(back.message.topic, back.queue_id, [back.message])
    clock.advance(seconds=11)
    with broker.consumer("g", retry_topic("g"), ALL) as member:
        for batch in member.poll():
            if batch.queue_id == 0:
                member.commit(retry_topic("g"), 0, batch.next_queue_offset)
        member.beat()
        assert [cause(broker, key) for key in ("k0", "k2")] == [Cause.DELIVERED, Cause.ON_ITS_WAY]
        assert f"it came back to {retry_topic('g')}/2, offset 0" in told(broker, "k2")


# E6 to E9


def test_a_delayed_message_by_each_of_its_names(broker: Broker, clock: Clock) -> None:
    consume(broker)
    with broker.producer() as producer:
        sent = [
            producer.send("Trade", b"", keys="at", delay=30),
            producer.send("Trade", b"", keys="level", delay_level=4),
            producer.send("Trade", b"", keys="gone", delay=30),
        ]
    names = {
        key: (key, result.message_id, result.offset_message_id)
        for key, result in zip(("at", "level", "gone"), sent, strict=True)
    }
    for name in (name for each in names.values() for name in each):
        assert cause(broker, name) is Cause.DELAYED, name
        assert "due in topic Trade at 2027-01-15T08:00:30.000+00:00" in told(broker, name)
    assert sent[2].recall_handle is not None
    assert broker.delays.recall(sent[2].recall_handle)
    for name in names["gone"]:
        assert cause(broker, name) is Cause.RECALLED, name
    clock.advance(seconds=31)
    for key in ("at", "level"):
        for name in names[key]:
            assert cause(broker, name) is Cause.NO_CONSUMER, name
    assert sorted(consume(broker)) == ["at", "level"]
    for key in ("at", "level"):
        for name in names[key]:
            found = broker.explain(name, "g")
            assert found.cause is Cause.DELIVERED, name
            assert found.message_id == broker.messages.query("Trade", key)[0].offset_message_id
            assert "it was delayed" in told(broker, name)
    for name in names["gone"]:
        assert cause(broker, name) is Cause.RECALLED, name


def test_a_delayed_message_whose_topic_was_deleted(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("Gone", 1)
    with broker.producer() as producer:
        producer.send("Gone", b"", keys="k", delay=5)
        [waiting] = broker.stored("rmq_sys_wheel_timer")
        name = waiting.offset_message_id
        assert cause(broker, name) is Cause.DELAYED
        broker.topics.delete("Gone")
        assert "there is no such topic now" in told(broker, name)
    clock.advance(seconds=10)
    assert cause(broker, name) is Cause.UNDELIVERABLE


def test_a_transaction_by_each_name_of_its_message(broker: Broker, clock: Clock) -> None:
    consume(broker)
    with NodeProducer(broker.node, group="pg", check=lambda _: "unknown") as producer:
        open_, back, done, later = (
            begin(producer, "Trade", b"", keys=[key], delay_level=level)
            for key, level in (("open", 0), ("back", 0), ("done", 0), ("later", 1))
        )
        back.rollback()
        done.commit()
        later.commit()
        broker._stepped.step()
        halves = {half.keys[0]: half.offset_message_id for half in broker.stored(HALF_TOPIC)}
        for transaction, key, expected in (
            (open_, "open", Cause.HALF_MESSAGE),
            (back, "back", Cause.ROLLED_BACK),
            (done, "done", Cause.NO_CONSUMER),
            (later, "later", Cause.DELAYED),
        ):
            for name in (key, transaction.message_id, halves[key]):
                assert cause(broker, name) is expected, (key, name)
        assert "producer group 'pg' for topic 'Trade' is not decided" in told(broker, "open")
        assert "was rolled back at" in told(broker, "back")
        clock.advance(seconds=2)
        assert sorted(consume(broker)) == ["done", "later"]
        for transaction, key in ((done, "done"), (later, "later")):
            for name in (key, transaction.message_id, halves[key]):
                assert cause(broker, name) is Cause.DELIVERED, (key, name)
        assert "was committed" in told(broker, "later")


# E10, E11


def test_a_predicate_that_fails_delivers_or_stops_as_its_group_asks(broker: Broker) -> None:
    with broker.producer() as producer:
        for key, body in (("two", b"2"), ("bad", b"no number"), ("four", b"4")):
            producer.send("Trade", body, keys=key)
    deliver = Subscription.where("support.predicates:is_even", "deliver")
    assert consume(broker, deliver) == ["two", "bad", "four"]
    assert cause(broker, "bad") is Cause.DELIVERED
    stop = Subscription.where("support.predicates:is_even")
    with broker.consumer("stops", "Trade", stop) as member:
        for batch in member.poll():
            member.commit("Trade", 0, batch.next_queue_offset)
        member.beat()
        causes = [cause(broker, key, "stops") for key in ("two", "bad", "four")]
        assert causes == [Cause.DELIVERED, Cause.STANDS_STILL, Cause.STANDS_STILL]
        for key in ("bad", "four"):
            assert "the group stopped at Trade/0, offset 1" in told(broker, key, "stops")
        assert "fails on one before it" in told(broker, "four", "stops")


@pytest.mark.parametrize("body", [b"1", b"2"])
def test_a_failing_predicate_is_found_behind_and_before_many_messages(
    broker: Broker, body: bytes
) -> None:
    with broker.producer() as producer:
        for number in range(70):
            producer.send("Trade", body, keys=f"before{number}")
        producer.send("Trade", b"no number", keys="bad")
        for number in range(70):
            producer.send("Trade", b"2", keys=f"behind{number}")
    stop = Subscription.where("support.predicates:is_even")
    with broker.consumer("g", "Trade", stop) as member:
        member.poll()
        member.beat()  # it took what is before the message that fails, and finished nothing
        for key in ("bad", "behind0", "behind69"):
            assert cause(broker, key) is Cause.STANDS_STILL, key
            assert "the group stopped at Trade/0, offset 70" in told(broker, key)
        before = Cause.ON_ITS_WAY if body == b"2" else Cause.CLASS_FALSE
        assert [cause(broker, key) for key in ("before0", "before69")] == [before, before]
    assert cause(broker, "bad") is Cause.STANDS_STILL, "with nobody who took what is before it"
    assert cause(broker, "behind69") is Cause.NO_CONSUMER


# The weak ones


def test_nobody_knows_what_members_of_a_broadcast_group_had(broker: Broker) -> None:
    send(broker, "k")
    with broker.consumer("g", "Trade", PAY, broadcast=True, client_id="m") as member:
        assert member.poll()
        assert cause(broker, "k") is Cause.UNKNOWN
        assert "has no record" in told(broker, "k")
    with broker.consumer("h", "Trade", SHIP, broadcast=True, client_id="m"):
        assert cause(broker, "k", "h") is Cause.TAG_MISMATCH


def test_a_message_that_expired(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("Short", 1, retention=RetentionPolicy(max_age_ms=1000))
    send(broker, "first", topic="Short")
    consume(broker, topic="Short")
    [first] = broker.messages.query("Short", "first")
    with broker.producer() as producer:
        for _ in range(5):
            producer.send("Short", bytes(3 << 20))
    consume(broker, topic="Short")
    clock.advance(hours=30)
    broker.node.expire()
    assert broker.messages.view(first.offset_message_id) is None
    found = broker.explain(first.offset_message_id, "g")
    assert found.cause is Cause.EXPIRED
    assert "begins at physical offset" in found.steps[-1].detail
    assert cause(broker, "first") is Cause.NOT_FOUND
    assert "older ones expired: Short/0 begins at offset" in told(broker, "first")


def test_a_topic_and_a_group_that_were_deleted(broker: Broker) -> None:
    broker.topics.ensure("Gone", 1)
    send(broker, "k", topic="Gone")
    consume(broker, topic="Gone")
    broker.topics.delete("Gone")
    found = broker.explain("k", "g", "Gone")
    assert found.cause is Cause.TOPIC_DELETED
    assert "was deleted at 2027-01-15T08:00" in found.steps[-1].detail
    assert cause(broker, "k") is Cause.NOT_FOUND
    assert "the group read topic 'Gone', which was deleted" in told(broker, "k")
    for group, topic in (("h", "Gone"), ("g", "Never")):
        found = broker.explain("k", group, topic)
        assert found.cause is Cause.NOT_FOUND
        assert found.steps[-1].detail.startswith(f"there is no topic {topic!r}; if it was deleted,")
    assert broker.explain("k", "g", "Trad").steps[-1].detail.endswith("did you mean 'Trade'?")
    send(broker, "t")
    consume(broker)
    broker.groups.delete("g")
    broker.faults.restart_coordinator()
    assert cause(broker, "t") is Cause.GROUP_DELETED
    assert consume(broker) == ["t"], "a group of that name begins anew"
    assert cause(broker, "t") is Cause.DELIVERED


def test_a_topic_that_may_not_be_read(broker: Broker) -> None:
    send(broker, "k")
    broker.consumer("g", "Trade", PAY).close()
    broker.topics.set_permission("Trade", 2)
    assert cause(broker, "k") is Cause.NOT_READABLE
    assert "rocketray topics alter Trade --perm 6" in told(broker, "k")


def test_names_like_those_that_were_asked_for(broker: Broker) -> None:
    send(broker, "order-18", "payment")
    with broker.consumer("audit", "Trade", PAY):
        assert "did you mean 'audit'?" in told(broker, "payment", "Adit")
        assert "did you mean 'order-18'?" in told(broker, "oder-18", "audit")
        assert "did you mean" not in told(broker, "something else", "audit")
        assert "did you mean" not in told(broker, "payment", "unlike")


def test_a_key_of_several_messages(broker: Broker, clock: Clock) -> None:
    ids = []
    for _ in range(3):
        send(broker, "k")
        clock.advance(seconds=1)
        ids.append(broker.messages.query("Trade", "k")[-1].offset_message_id)
    found = broker.explain("k", "g")
    assert found.message_id == ids[2]
    assert found.steps[0].detail == (
        f"3 messages have the key 'k'; this is the newest, and the others are {ids[1]}, {ids[0]}"
    )
    assert "messages have the key" not in told(broker, ids[2])


# What is not known


def test_before_a_journal_begins_nothing_is_guessed(broker: Broker) -> None:
    send(broker, "old")
    consume(broker)
    for path in journal_directory(broker.data).iterdir():
        path.unlink()
    broker.faults.restart_coordinator()
    assert cause(broker, "old") is Cause.UNKNOWN
    assert "journal does not go back that far" in told(broker, "old")
    send(broker, "new")
    assert cause(broker, "new") is Cause.NO_CONSUMER
    assert consume(broker) == ["new"]
    assert [cause(broker, key) for key in ("old", "new")] == [Cause.UNKNOWN, Cause.DELIVERED]


def test_offsets_that_a_coordinator_forgot_are_gone_over_again(broker: Broker) -> None:
    send(broker, "p1", "p2", tags="pay")
    consume(broker, PAY)
    broker.consumer("g", "Trade", SHIP).close()
    assert cause(broker, "p2") is Cause.DELIVERED
    groups = broker.data / "config" / "groups.json"
    state = json.loads(groups.read_text())
    assert state["offsetTable"]["Trade@g"] == {"0": 2}
    state["offsetTable"]["Trade@g"]["0"] = 1
    groups.write_text(json.dumps(state))
    broker.faults.restart_coordinator()
    assert broker.committed("g", "Trade") == {0: 1}
    assert consume(broker, SHIP) == []
    assert [cause(broker, key) for key in ("p1", "p2")] == [Cause.DELIVERED, Cause.DELIVERED]
    send(broker, "s3", tags="ship")
    assert consume(broker, SHIP) == ["s3"]
    assert cause(broker, "s3") is Cause.DELIVERED


def test_a_queue_whose_end_was_lost_has_other_messages_there(broker: Broker) -> None:
    send(broker, "a", "b")
    consume(broker)
    broker.node.state.registry.journals.note(EntryKind.BACK, "g", "Trade", {0: (2, 1)}, who="m9")
    broker.node.state.registry.offsets.commit("g", "Trade", 0, 1)
    assert [cause(broker, key) for key in "ab"] == [Cause.DELIVERED, Cause.NO_CONSUMER]
    assert "the group got it before" not in told(broker, "b")
