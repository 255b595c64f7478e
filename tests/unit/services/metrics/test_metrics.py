"""The metrics of a node say what happened to its messages, and what is not known has no sample."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.harness.source_tree import ROOT

from rocketray.errors import ShardUnavailableError
from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.message import Message
from rocketray.messaging.api.system_api import TransactionOverview
from rocketray.services.health.node_readings import NodeReadings, read_node
from rocketray.services.health.troubles import Trouble, TroubleKind
from rocketray.services.metrics.metric_families import families_of
from rocketray.testing import Broker

TAGS = "ab"
GROUP = GroupDescription("g", "T", Subscription.tags("*"), {}, {}, {}, NO_COUNTERS, 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def send(broker: Broker, message: Message) -> None:
    with broker.producer() as producer:
        producer.send_many(message.topic, [message])


class Shown:
    """What a scrape of metrics has, by name and labels."""

    def __init__(self, readings: NodeReadings) -> None:
        registry = CollectorRegistry()
        registry.register(self)
        self._families = families_of(readings)
        text = generate_latest(registry).decode()
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def collect(self) -> list[Metric]:
        return self._families

    def of(self, name: str, **labels: str) -> float | None:
        """The sum of the samples of that name that have the labels; None if there are none."""
        found = [
            value
            for (sample, given), value in self.samples.items()
            if sample == name and labels.items() <= dict(given).items()
        ]
        return sum(found) if found else None


def test_they_agree_with_what_was_sent_and_taken(broker: Broker, rng: random.Random) -> None:
    broker.topics.ensure("Trade", 2)
    tags = [rng.choice(TAGS) for _ in range(rng.randrange(20, 60))]
    for number, tag in enumerate(tags):
        properties = {"amount": rng.choice(["5", "50", "x"])}
        send(broker, Message("Trade", b"%d" % number, tag, properties=properties))
        tags[number] = f"{tag}{properties['amount']}"
    wanted = {
        "by-tag": (Subscription.tags("a"), lambda one: one[0] == "a"),
        "by-sql": (Subscription.sql("amount > 10"), lambda one: one[1:] == "50"),
        "all": (Subscription.tags("*"), lambda _: True),
    }
    for group, (subscription, matches) in wanted.items():
        expected = sum(map(matches, tags))
        room = rng.randrange(1, 10)
        with broker.consumer(group, "Trade", subscription) as member:
            taken = 0
            for batch in member.poll(max_messages=room):
                taken += len(batch)
                member.commit("Trade", batch.queue_id, batch.next_queue_offset)
            member.beat()
            shown = Shown(read_node(broker.node))
            named = {"topic": "Trade", "consumer_group": group}
            assert shown.of("rocketmq_consumer_connections", **named) == 1
            assert shown.of("rocketmq_messages_out_total", **named) == taken
            assert shown.of("rocketmq_consumer_lag_messages", **named) == expected - taken
            assert shown.of("rocketray_lag_exact", **named) == 1
            assert shown.of("rocketmq_consumer_inflight_messages", **named) == 0
            scanned = shown.of("rocketray_filter_scanned_total", **named)
            assert scanned is not None
            assert taken <= scanned <= len(tags)
    shown = Shown(read_node(broker.node))
    assert shown.of("rocketmq_messages_in_total", topic="Trade", is_system="false") == len(tags)
    assert shown.of("rocketray_queue_max_offset", topic="Trade") == len(tags)
    assert shown.of("rocketmq_consumer_group_number") == len(wanted)
    assert shown.of("rocketmq_topic_number") == len(broker.topics.all())
    assert shown.of("rocketray_unknown") is None


def test_the_results_of_an_expression_add_up(broker: Broker) -> None:
    broker.topics.ensure("Trade", 1)
    for amount in ("5", "50", "500", "x"):
        send(broker, Message("Trade", b"", properties={"amount": amount}))
    with broker.consumer("g", "Trade", Subscription.sql("amount > 10", "rocketmq")) as member:
        member.poll()
        member.beat()
        shown = Shown(read_node(broker.node))
    by_result = {
        result: shown.of("rocketray_filter_evaluated_total", consumer_group="g", result=result)
        for result in ("match", "no_match", "error")
    }
    assert by_result == {"match": 2, "no_match": 1, "error": 1}
    assert shown.of("rocketray_filter_code_hits_total", consumer_group="g") == 4
    assert shown.of("rocketray_filter_evaluated_total", consumer_group="other") is None


def test_bytes_waits_and_ages_are_those_of_the_messages(broker: Broker) -> None:
    broker.topics.ensure("Trade", 2)
    with broker.consumer("g", "Trade", Subscription.tags("a")):
        assert Shown(read_node(broker.node)).of("rocketmq_consumer_lag_latency") == 0
        send(broker, Message("Trade", b"1", "b"))
        broker.clock.advance(seconds=7)
        send(broker, Message("Trade", b"2", "a"))
        with broker.producer() as producer:
            producer.send("Trade", b"3", delay=60)
        shown = Shown(read_node(broker.node))
    sizes = [len(message.body) for message in broker.stored("Trade")]
    grown = shown.of("rocketmq_throughput_in_total", topic="Trade")
    assert grown is not None
    assert grown > sum(sizes)
    assert shown.of("rocketmq_storage_size", topic="Trade") == grown, "nothing was removed"
    assert shown.of("rocketmq_consumer_lag_latency", consumer_group="g") == 7000
    assert shown.of("rocketmq_timing_messages") == 1
    assert shown.of("rocketmq_half_messages") == 0
    broker.clock.advance(seconds=60)
    assert Shown(read_node(broker.node)).of("rocketmq_timing_messages") == 0


def test_transactions_are_counted_by_their_end(broker: Broker) -> None:
    broker.topics.ensure("Trade", 1)
    with broker.producer(group="p", check=lambda _: "unknown") as producer:
        for end in ("commit", "rollback", ""):
            transaction = producer.begin()
            producer.send("Trade", end.encode(), transaction=transaction)
            if end:
                getattr(transaction, end)()
        broker.clock.advance(seconds=1)
        shown = Shown(read_node(broker.node))
    assert shown.of("rocketmq_half_messages") == 1
    assert shown.of("rocketmq_commit_messages_total") == 1
    assert shown.of("rocketmq_rollback_messages_total") == 1
    assert shown.of("rocketray_abandoned_transactions_total") == 0


def test_what_does_not_answer_is_unknown_and_not_zero(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics.ensure("Here", 1)
    broker.topics.ensure("Away", 1)
    send(broker, Message("Here", b""))
    with broker.consumer("g", "Here", Subscription.tags("*")):
        pass
    gone = broker.topics.get("Away").process_of(0)
    calls = broker.node.process_calls

    def answer(process: str) -> object:
        if process == gone:
            raise ShardUnavailableError("shard Away/0", "its process is gone")
        return calls(process)

    monkeypatch.setattr(broker.node, "process_calls", answer)
    readings = read_node(broker.node)
    shown = Shown(readings)
    assert shown.of("rocketmq_messages_in_total", topic="Here") == 1
    assert shown.of("rocketmq_messages_in_total", topic="Away") is None
    assert shown.of("rocketray_unknown", part="topic Away") == 1
    closed = Shown(replace(readings, groups=None, lags={}, unknown={"groups": "they are closed"}))
    assert closed.of("rocketmq_consumer_group_number") is None
    assert closed.of("rocketmq_consumer_lag_messages") is None
    assert closed.of("rocketray_unknown", part="groups") == 1


def test_the_reference_names_them_all() -> None:
    group = replace(GROUP, subscription=Subscription.sql("a > 1"))
    families = families_of(
        NodeReadings(
            "c",
            1,
            {},
            [group],
            unknown={"a part": "it does not answer"},
            transactions=TransactionOverview(),
            delayed=0,
        )
    )
    names = {
        f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families
    }
    page = (ROOT / "docs/reference/metrics.md").read_text()
    assert dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)) == names


def test_troubles_are_counted_by_kind() -> None:
    readings = NodeReadings("c", 0, {})
    troubles = [Trouble(kind, "it burns") for kind in (TroubleKind.HELD, TroubleKind.HELD)]
    [family] = [one for one in families_of(readings, troubles) if one.name == "rocketray_troubles"]
    counts = {sample.labels["kind"]: sample.value for sample in family.samples}
    elsewhere = {TroubleKind.APP, TroubleKind.GROWING}
    measured = [kind.value for kind in TroubleKind if kind not in elsewhere]
    assert counts == dict.fromkeys(measured, 0) | {"held": 2}
