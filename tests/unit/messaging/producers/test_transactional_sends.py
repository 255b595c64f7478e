"""Transactional sends from the producer to the consumer, on a node in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode
from support.nodes.transactions import begin

from rocketray.base.system_topics import END_TOPIC, GIVEN_UP_TOPIC, HALF_TOPIC
from rocketray.base.transaction import Outcome
from rocketray.broker.retries.undeliverable import TRANSACTION_LETTERS
from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    ShardUnavailableError,
    StoreError,
    TopicNotFoundError,
    TransactionDecidedError,
)
from rocketray.message import StoredMessage
from rocketray.messaging.producers import transactional_sends
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.transactional_sends import CheckAnswer
from rocketray.runtime.files.paths import config_directory
from rocketray.store.age_clock import AgeClock
from rocketray.testing import Broker

pytestmark = pytest.mark.proves(
    "durability",
    "A damaged file of the node's state is rebuilt from its copy, and each other row of that table",
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 2)
        yield node


def unknown(_message: StoredMessage) -> CheckAnswer:
    return "unknown"


def visible(node: LocalNode, topic: str = "Trade") -> list[StoredMessage]:
    queues = range(node.topics.get(topic).queues)
    found = []
    for queue_id in queues:
        end = node.shard_statistics(topic)[queue_id].max_queue_offset
        for offset in range(end):
            message = node.messages.at(topic, queue_id, offset)
            assert message
            found.append(message)
    return found


@pytest.mark.proves("producers", "A transactional message is visible after its commit")
def test_a_message_appears_with_its_commit(node: LocalNode) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        with begin(
            producer,
            "Trade",
            b"body",
            tags="pay",
            keys=["k"],
            properties={"a": "b"},
            sharding_key="x",
        ) as transaction:
            assert visible(node) == []
        wait_until(lambda: len(visible(node)) == 1)
    [message] = visible(node)
    assert message.unique_key == transaction.message_id
    assert (message.body, message.tags, message.keys) == (b"body", "pay", ["k"])
    assert message.properties["a"] == "b"
    assert message.sys_flag & 0xC == 0x8
    [half] = visible(node, HALF_TOPIC)
    assert message.prepared_transaction_offset == half.physical_offset
    assert message.born_timestamp_ms == half.born_timestamp_ms
    assert node.messages.query("Trade", "k") == [message]


@pytest.mark.proves("transactions", "A delay starts with the commit")
def test_a_delay_begins_with_the_commit(node: LocalNode) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        with pytest.raises(ConfigError, match="1 to 18"):
            begin(producer, "Trade", b"", delay_level=19)
        with begin(producer, "Trade", b"later", keys=["k"], delay_level=1):
            committing_ms = time.time_ns() // 1_000_000
        wait_until(lambda: len(visible(node)) == 1)
    [message] = visible(node)
    assert (message.body, message.keys, message.sys_flag & 0xC) == (b"later", ["k"], 0x8)
    assert message.store_timestamp_ms - committing_ms >= 1000, "the level is one second"


def test_a_transaction_costs_no_call_to_the_catalogue(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        begin(producer, "Trade", b"", delay_level=1).rollback()
        made: list[str] = []
        monkeypatch.setattr(node.topics, "ensure", lambda topic, _queues: made.append(topic))
        for level in (1, 2, 0):
            begin(producer, "Trade", b"", delay_level=level).rollback()
        assert made == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue_selector": lambda *_: 0}, "no queue_selector=, as in RocketMQ; it has queue_id="),
        ({"delay": 5}, "no delay=, as in RocketMQ"),
        ({"unique_key": "u"}, "no unique_key=, as in RocketMQ"),
    ],
)
def test_a_transaction_has_the_options_of_rocketmqs(
    node: LocalNode, options: Any, says: str
) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        transaction = producer.begin()
        with pytest.raises(ConfigError, match=says):
            producer.send("Trade", b"", transaction=transaction, **options)
        with pytest.raises(ConfigError, match="needs the result of its message"):
            producer.send_oneway("Trade", b"", transaction=transaction)
        assert visible(node, HALF_TOPIC) == []
        producer.send("Trade", b"", transaction=transaction)
        transaction.rollback()


@pytest.mark.proves("producers", "A transaction has one message")
def test_a_transaction_is_one_message_of_its_own_producer(node: LocalNode) -> None:
    with (
        NodeProducer(node, group="payments", check=unknown) as producer,
        NodeProducer(node, group="payments", check=unknown) as other,
    ):
        with producer.begin() as transaction:
            with pytest.raises(ConfigError, match="is another producer's"):
                other.send("Trade", b"", transaction=transaction)
            sent = producer.send_async("Trade", b"1", transaction=transaction)
            assert sent.result().message_id == transaction.message_id
            for send in (producer.send, producer.send_async):
                with pytest.raises(ConfigError, match="has its message: a transaction is one"):
                    send("Trade", b"2", transaction=transaction)
            with pytest.raises(ConfigError, match="transaction= belongs to one message"):
                producer.send_many("Trade", bodies=[b"3"], transaction=transaction)  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="was decided before: commit; begin another"):
            producer.send("Trade", b"4", transaction=transaction)
        wait_until(lambda: [message.body for message in visible(node)] == [b"1"])
        assert len(visible(node, HALF_TOPIC)) == 1


@pytest.mark.proves("producers", "A transaction without a message ends without a decision")
def test_a_transaction_without_a_message_is_over_at_its_end(node: LocalNode) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        with producer.begin() as committed:
            pass
        with pytest.raises(ZeroDivisionError), producer.begin() as rolled_back:
            _ = 1 / 0
        for transaction, outcome in ((committed, "commit"), (rolled_back, "rollback")):
            with pytest.raises(ConfigError, match=f"was decided before: {outcome}"):
                producer.send("Trade", b"", transaction=transaction)
    assert visible(node, HALF_TOPIC) == visible(node, END_TOPIC) == []


@pytest.mark.proves("producers", "An exception in the block rolls the transaction back")
def test_what_raises_is_rolled_back(node: LocalNode) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        with pytest.raises(ZeroDivisionError), begin(producer, "Trade", b"1"):
            _ = 1 / 0
        with begin(producer, "Trade", b"2") as second:
            second.rollback()
        with pytest.raises(ConfigError, match="rollback"):
            second.commit()
        with begin(producer, "Trade", b"3"):
            pass
        wait_until(lambda: [message.body for message in visible(node)] == [b"3"])


def test_a_transaction_is_for_a_topic_of_users(node: LocalNode) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        with pytest.raises(TopicNotFoundError):
            begin(producer, "Absent", b"")
        with pytest.raises(InvalidMessageError, match="system topic"):
            begin(producer, HALF_TOPIC, b"")
    assert visible(node, HALF_TOPIC) == []


@pytest.mark.proves("producers", "Another producer of the group answers checks for a dead one")
def test_another_producer_of_the_group_answers_for_one_that_died(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = NodeProducer(node, group="payments", check=unknown)
    for number in range(4):
        begin(first, "Trade", b"%d" % number, properties={"number": str(number)})
    first.close()  # without a decision
    asked: list[str] = []

    def check(message: StoredMessage) -> CheckAnswer:
        assert message.topic == "Trade"
        asked.append(message.properties["number"])
        match message.properties["number"]:
            case "0":
                return "commit"
            case "1":
                return "rollback"
            case "2":
                raise RuntimeError("the database is away")
            case _:
                return "maybe"  # type: ignore[return-value]

    with NodeProducer(node, group="payments", check=check) as second:
        monkeypatch.setattr(AgeClock, "age_ms", lambda *_: 7_000)
        wait_until(lambda: second.transactions.answer_checks() >= 0 and len(asked) == 4)
        wait_until(lambda: len(visible(node)) == 1)
        assert second.transactions.answer_checks() == 0, (
            "those that are unknown are asked about later"
        )
    assert sorted(asked) == ["0", "1", "2", "3"]
    assert [message.body for message in visible(node)] == [b"0"]


def check_that_says(answer: CheckAnswer) -> Callable[[StoredMessage], CheckAnswer]:
    return lambda _message: answer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(transactional_sends, "_ASK_INTERVAL_S", 1e6)
    with Broker() as broker:
        broker.topics.ensure("Trade", 1)
        yield broker


@pytest.mark.proves("transactions", "No check is called for a block that is open in this process")
def test_no_check_is_asked_about_a_block_that_is_open_in_this_process(broker: Broker) -> None:
    stored: list[str] = []

    def was_stored(_message: StoredMessage) -> CheckAnswer:
        return "commit" if stored else "rollback"

    with (
        NodeProducer(broker.node, group="orders", check=was_stored) as producer,
        NodeProducer(broker.node, group="orders", check=was_stored) as beside,
    ):
        with begin(producer, "Trade", b"17"):
            broker.clock.advance(seconds=7)
            assert beside.transactions.answer_checks() == 1
            broker.clock.advance(seconds=31)
            assert producer.transactions.answer_checks() == 1
            stored.append("17")
        assert [message.body for message in broker.stored("Trade")] == [b"17"]


def test_a_check_may_answer_when_the_block_is_over_or_forgotten(broker: Broker) -> None:
    with NodeProducer(broker.node, group="orders", check=check_that_says("commit")) as producer:
        over = begin(producer, "Trade", b"over")
        with broker.faults.shard_down(END_TOPIC), pytest.raises(ShardUnavailableError):
            over.commit()
        begin(producer, "Trade", b"forgotten")
        broker.clock.advance(seconds=7)
        assert producer.transactions.answer_checks() == 2
        assert len(broker.stored("Trade")) == 2
        over.commit()


@pytest.mark.proves("producers", "A decision that contradicts an earlier one raises an error")
@pytest.mark.proves("transactions", "A decision that contradicts a check raises an error")
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("first", "second"), [("rollback", "commit"), ("commit", "rollback")])
def test_who_decides_otherwise_than_a_check_hears_so(
    broker: Broker, *, first: Outcome, second: Outcome, is_restarted: bool
) -> None:
    with NodeProducer(broker.node, group="orders", check=check_that_says(first)) as producer:
        transaction = begin(producer, "Trade", b"1")
        transaction.close()  # as if it were open in another process
        broker.clock.advance(seconds=7)
        assert producer.transactions.answer_checks() == 1
        decided_ms = broker.clock()
        if is_restarted:
            broker.clock.advance(seconds=60)
            broker.faults.restart_shard(END_TOPIC)
        with pytest.raises(TransactionDecidedError, match="a check decided before") as raised:
            getattr(transaction, second)()
        found = raised.value
        assert (found.outcome, found.decided_ms, found.decider) == (first, decided_ms, "check")
        getattr(transaction, first)()
        assert len(broker.stored("Trade")) == (first == "commit")


@pytest.mark.proves("transactions", "A commit of an abandoned transaction raises an error")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_who_commits_what_the_node_gave_up_hears_so(broker: Broker, *, is_restarted: bool) -> None:
    with NodeProducer(broker.node, group="orders", check=unknown) as producer:
        transaction = begin(producer, "Trade", b"1")
        transaction.close()
        for _ in range(15):
            broker.clock.advance(seconds=31)
            assert producer.transactions.answer_checks() == 1
        broker.clock.advance(seconds=31)
        assert len(broker.stored(GIVEN_UP_TOPIC)) == 1
        if is_restarted:
            broker.faults.restart_shard(END_TOPIC)
        with pytest.raises(TransactionDecidedError, match=r"the node decided before.*abandon"):
            transaction.commit()
        assert broker.stored("Trade") == []


@pytest.mark.proves(
    "transactions",
    "A step of the wall clock abandons no transaction and sends no check early or late",
)
def test_a_clock_that_is_days_ahead_for_a_moment_ends_no_transaction(broker: Broker) -> None:
    with NodeProducer(broker.node, group="orders", check=unknown) as producer:
        transaction = begin(producer, "Trade", b"1")
        broker.clock.advance(minutes=11)
        broker.clock.jump(seconds=80 * 3600)
        broker.clock.advance(seconds=2)
        broker.clock.jump(seconds=-80 * 3600)
        transaction.commit()
    assert [message.body for message in broker.stored("Trade")] == [b"1"]


@pytest.mark.proves("transactions", "A decision without an answer may be repeated")
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_decision_whose_answer_is_lost_may_be_told_again(
    broker: Broker, *, is_stored: bool, is_restarted: bool
) -> None:
    with NodeProducer(broker.node, group="orders", check=unknown, ack="disk") as producer:
        transaction = begin(producer, "Trade", b"1")
        (broker.faults.lose_acks if is_stored else broker.faults.fail_appends)(1, END_TOPIC)
        with pytest.raises(ShardUnavailableError, match="the outcome of the commit") as raised:
            transaction.commit()
        assert "commit it again, which is safe" in str(raised.value)
        assert len(broker.stored("Trade")) == is_stored
        if is_restarted:
            broker.faults.restart_shard(END_TOPIC)
        transaction.commit()
        transaction.commit()
        assert len(broker.stored("Trade")) == 1
        assert len(broker.stored(END_TOPIC)) == 1


def test_a_block_that_raised_is_told_of_though_a_check_committed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with NodeProducer(broker.node, group="orders", check=check_that_says("commit")) as producer:
        transaction = begin(producer, "Trade", b"1")
        transaction.close()
        broker.clock.advance(seconds=7)
        producer.transactions.answer_checks()
        with pytest.raises(ZeroDivisionError), transaction:
            _ = 1 / 0
        assert "the rollback is refused, because a check decided before" in caplog.text


def test_what_is_no_half_of_the_group_cannot_be_decided(broker: Broker) -> None:
    with (
        NodeProducer(broker.node, group="orders", check=unknown) as producer,
        NodeProducer(broker.node, group="others", check=unknown) as stranger,
    ):
        transaction = begin(producer, "Trade", b"1")
        for who, offset, key in (
            (stranger, transaction.half_place, transaction.message_id),
            (producer, transaction.half_place, "another"),
            (producer, (0, 99), transaction.message_id),
        ):
            with pytest.raises(StoreError, match="is unknown: half message"):
                who.transactions.decide(offset, key, "commit")
        assert broker.stored("Trade") == []
        transaction.commit()
        assert len(broker.stored("Trade")) == 1


@pytest.mark.proves(
    "transactions",
    "A commit whose topic was deleted is refused; one that a check decides makes a dead letter",
)
def test_what_is_committed_for_a_deleted_topic_is_a_dead_letter(node: LocalNode) -> None:
    with NodeProducer(node, group="payments", check=unknown) as producer:
        with begin(producer, "Trade", b"1", queue_id=0):
            pass
        wait_until(lambda: len(visible(node)) == 1)
        late = begin(producer, "Trade", b"2", queue_id=0)
        again = begin(producer, "Trade", b"3", queue_id=1)
        node.topics.delete("Trade")
        for transaction in (late, again):
            with pytest.raises(TopicNotFoundError, match="rocketray topics create Trade"):
                transaction.commit()
        producer.transactions.decide(late.half_place, late.message_id, "commit", "check")
        wait_until(lambda: TRANSACTION_LETTERS in node.topics.all())
        wait_until(lambda: len(visible(node, TRANSACTION_LETTERS)) == 1)
        node.topics.create("Trade", 2)
        again.commit()
        wait_until(lambda: len(visible(node)) == 1)
    assert visible(node, TRANSACTION_LETTERS)[0].unique_key == late.message_id
    assert visible(node)[0].unique_key == again.message_id


def test_a_commit_needs_no_coordinator_to_look_at_its_topic(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def away(topic: str) -> None:
        asked.append(topic)
        raise ShardUnavailableError("the coordinator", "away, as the test asked")

    with NodeProducer(node, group="payments", check=unknown) as producer:
        monkeypatch.setattr(node.topics, "get", away)
        producer.transactions.check_target("Trade", 0)
        assert asked == []
        monkeypatch.setattr(transactional_sends, "control_path", lambda *_: Path("elsewhere"))
        producer.transactions.check_target("Trade", 0)
        assert asked == ["Trade"]
        monkeypatch.undo()


def test_transactions_go_on_after_a_restart_of_the_node(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1)
        producer = NodeProducer(node, group="payments", check=unknown)
        open_one = begin(producer, "Trade", b"open")
        with begin(producer, "Trade", b"done"):
            pass
        wait_until(lambda: len(visible(node)) == 1)
        producer.close()
    with LocalNode(tmp_path / "data") as node:
        with NodeProducer(node, group="payments", check=unknown) as producer:
            [half, _] = visible(node, HALF_TOPIC)
            producer.transactions.decide((0, half.queue_offset), open_one.message_id, "commit")
            wait_until(lambda: len(visible(node)) == 2)
        assert [message.body for message in visible(node)] == [b"done", b"open"]
        assert visible(node, GIVEN_UP_TOPIC) == []


@pytest.fixture
def progress(tmp_path: Path) -> Path:
    """What a node that committed one transaction left of its progress."""
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1)
        with NodeProducer(node, group="payments", check=unknown) as producer:
            begin(producer, "Trade", b"first").commit()
            wait_until(lambda: len(visible(node)) == 1)
    return config_directory(tmp_path / "data") / "transactions.json"


@pytest.mark.parametrize("damage", ["{", '{"halfOffset": "x"}', '{"checks": [1]}'])
def test_damaged_progress_takes_its_copy_and_is_told(progress: Path, damage: str) -> None:
    progress.write_text(damage)
    with LocalNode(progress.parent.parent) as node:
        with NodeProducer(node, group="payments", check=unknown) as producer:
            begin(producer, "Trade", b"second").commit()
            wait_until(lambda: len(visible(node)) == 2)
        [line] = node.problems()
        assert line.startswith(f"{progress}: it was damaged")


def test_without_progress_and_its_copy_no_transaction_is_decided(progress: Path) -> None:
    for path in (progress, progress.with_name("transactions.json.bak")):
        path.write_text('{"opOffset": null}')
    with (
        LocalNode(progress.parent.parent) as node,
        NodeProducer(node, group="payments", check=unknown) as producer,
    ):
        transaction = begin(producer, "Trade", b"second")
        with pytest.raises(StoreError, match=r"transactions\.json: damaged .*\.bak"):
            transaction.commit()
        assert len(visible(node)) == 1
