"""Each way in which a message can be missing is brought about, and must be the cause that is named."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.batches import stored
from support.nodes.local_node import LocalNode

from rocketray.broker.shards.shard_api import StoredFacts
from rocketray.errors import FilterEvaluationError
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import ExplainStep, FilterReason, FilterVerdict
from rocketray.groups.failing import FailingMessage
from rocketray.groups.journal.place_history import Happening, PlaceHistory, Stretch
from rocketray.hashing import tags_code
from rocketray.message import Message
from rocketray.runtime.files.paths import CONTROL_PAGE
from rocketray.services.explaining.cause import Cause
from rocketray.services.explaining.explanation import Explanation
from rocketray.services.explaining.inquiry import inquire
from rocketray.services.explaining.rules import GroupFacts, explain_stored
from rocketray.store.formats.sys_flag import PREPARED, ROLLBACK

MATCHED = FilterVerdict(FilterReason.MATCHED, ())
AHEAD = PlaceHistory((), is_ahead=True)
FACTS = GroupFacts(Subscription.tags("*"), 0, 0, {"m": [0]}, AHEAD)
WITHOUT = Cause.NO_GROUP, ExplainStep("subscription", "no group", "")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1)
        yield node


def ask(node: LocalNode, wanted: str, group: str = "g", topic: str | None = None) -> Explanation:
    """The explanation; asking must change nothing on disk."""
    before = checksums(node.data)
    found = inquire(node, wanted, group, topic)
    assert checksums(node.data) == before
    return found


def checksums(directory: Path) -> dict[str, str]:
    # A control page counts the threads that sleep on it, and a timer's flush writes the checkpoint.
    beside = {CONTROL_PAGE, "checkpoint"}
    files = [path for path in directory.rglob("*") if path.is_file() and path.name not in beside]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def send(node: LocalNode, *messages: Message) -> None:
    with node.producer() as producer:
        producer.send_many("Trade", messages, queue_id=0)


def consume(node: LocalNode, subscription: Subscription, group: str = "g") -> None:
    """A member comes, finishes all that there is and goes."""
    end = node.shard("Trade", 0).writer.store.reads.max_queue_offset("Trade", 0)
    with node.consumer(group, "Trade", subscription) as member:
        at = 0
        while at < end:
            for batch in member.poll(0.2):
                at = batch.next_queue_offset
                member.commit("Trade", 0, at)


def test_what_was_finished_is_delivered(node: LocalNode) -> None:
    send(node, Message("Trade", b"1", tags="pay", keys=("k",)))
    consume(node, Subscription.tags("pay"))
    found = ask(node, "k")
    assert found.cause is Cause.DELIVERED
    assert found.message_id == node.messages.query("Trade", "k")[0].offset_message_id
    assert ask(node, found.message_id).cause is Cause.DELIVERED
    unique = node.messages.query("Trade", "k")[0].unique_key
    assert unique is not None
    assert ask(node, unique).cause is Cause.DELIVERED
    assert [step.stage for step in found.steps][:2] == ["stored", "dispatched"]
    assert found.to_json()["cause"] == "delivered"


def test_a_message_that_is_not_there_is_not_found(node: LocalNode) -> None:
    send(node, Message("Trade", b"1", keys=("k",)))
    assert ask(node, "other").cause is Cause.NOT_FOUND
    missing = node.messages.query("Trade", "k")[0].offset_message_id[:-1] + "F"
    assert ask(node, missing).cause is Cause.NOT_FOUND


def test_a_group_that_never_was_and_one_that_is_elsewhere(node: LocalNode) -> None:
    send(node, Message("Trade", b"1", keys=("k",)))
    assert ask(node, "k").cause is Cause.NO_GROUP
    node.topics.ensure("Audit", 1)
    with node.consumer("g", "Audit", Subscription.tags("*")):
        found = ask(node, "k", topic="Trade")
    assert found.cause is Cause.NOT_SUBSCRIBED
    assert "Audit" in found.steps[-1].detail


def test_a_group_that_began_behind_the_message(node: LocalNode) -> None:
    send(node, Message("Trade", b"1", keys=("k",)))
    with node.consumer("g", "Trade", Subscription.tags("*"), start="latest") as member:
        member.poll(0.2)
    assert ask(node, "k").cause is Cause.BEFORE_START


def test_a_key_finds_the_newest_message_in_whatever_topic(node: LocalNode) -> None:
    node.topics.ensure("Audit", 1)
    send(node, Message("Trade", b"old", keys=("k",)))
    time.sleep(0.005)  # store times are milliseconds
    with node.producer() as producer:
        producer.send_many("Audit", [Message("Audit", b"new", keys=("k",))])
    newest = node.messages.query("Audit", "k")[0].offset_message_id
    assert ask(node, "k").message_id == newest
    assert ask(node, "k", topic="Trade").message_id != newest


def test_a_living_member_that_has_not_come_so_far_and_none_at_all(node: LocalNode) -> None:
    send(node, Message("Trade", b"1", keys=("k",)))
    with node.consumer("g", "Trade", Subscription.tags("*")) as member:
        while not member.poll(1.0):
            pass
        assert ask(node, "k").cause is Cause.ON_ITS_WAY
    assert ask(node, "k").cause is Cause.NO_CONSUMER


def test_a_filter_that_says_no_is_named_whatever_else_is_true(node: LocalNode) -> None:
    send(node, Message("Trade", b"no number", tags="BB", keys=("k",), properties={"a": "5d"}))
    cases = {
        "tag": (Subscription.tags("Aa"), Cause.TAG_COLLISION),
        "tags": (Subscription.tags("pay"), Cause.TAG_MISMATCH),
        "false": (Subscription.sql("a = 'x'"), Cause.SQL_FALSE),
        "null": (Subscription.sql("b = 'x'"), Cause.SQL_NULL),
        "error": (Subscription.sql("a > 5"), Cause.SQL_ERROR),
        "tagged": (Subscription.where("support.predicates:are_tagged"), Cause.CLASS_FALSE),
        "even": (Subscription.where("support.predicates:is_even", "skip"), Cause.CLASS_ERROR),
        "are": (Subscription.where("support.predicates:are_even", "skip"), Cause.CLASS_ERROR),
        "stops": (Subscription.where("support.predicates:is_even"), Cause.STANDS_STILL),
        "takes": (Subscription.where("support.predicates:is_even", "deliver"), Cause.NO_CONSUMER),
    }
    for group, (subscription, cause) in cases.items():
        node.consumer(group, "Trade", subscription).close()
        assert ask(node, "k", group).cause is cause, group


def test_messages_of_transactions_that_are_open_or_rolled_back() -> None:
    message = stored(Message("T", b""), 0, 0)
    for flag, cause in ((PREPARED, Cause.HALF_MESSAGE), (ROLLBACK, Cause.ROLLED_BACK)):
        facts = StoredFacts(replace(message, sys_flag=flag), False, None, 0, 5)
        assert explained(facts).cause is cause


def test_messages_that_no_queue_leads_to() -> None:
    message = stored(Message("T", b""), 0, 3)
    lost = StoredFacts(message, is_dispatched=False, tags_code=None,
                       min_queue_offset=0, max_queue_offset=5)  # fmt: skip
    assert explained(lost).cause is Cause.NOT_DISPATCHED
    assert explained(replace(lost, min_queue_offset=4)).cause is Cause.EXPIRED


def test_a_queue_that_nobody_has() -> None:
    facts = StoredFacts(stored(Message("T", b""), 1, 3), True, 0, 0, 5)
    assert explained(facts).cause is Cause.NOT_ASSIGNED
    assert explained(facts, replace(FACTS, members={})).cause is Cause.NO_CONSUMER
    passed = PlaceHistory((Stretch(Happening.PASSED, None),), is_ahead=False)
    assert explained(facts, replace(FACTS, history=passed)).cause is Cause.DELIVERED


def test_the_message_at_which_a_queue_is_held_and_those_behind_it(node: LocalNode) -> None:
    send(node, *(Message("Trade", b"x", keys=(f"k{number}",)) for number in range(3)))
    with node.consumer("g", "Trade", Subscription.tags("*")) as member:
        member.poll(1.0)
        member.report_failing({0: FailingMessage(1, 7, 17, "ValueError: no number")})
        member.beat()
        held = ask(node, "k1")
        assert held.cause is Cause.FAILING
        told = "held at offset 1: attempt 7 of 17, ValueError: no number"
        assert held.steps[-1].detail.endswith(f"fails on it, and the queue is {told}")
        behind = ask(node, "k2")
        assert behind.cause is Cause.ON_ITS_WAY
        assert behind.steps[-1].detail.endswith(f"one before it, and the queue is {told}")
        assert "held" not in ask(node, "k0").steps[-1].detail
        member.report_failing({})
        member.beat()
        assert ask(node, "k1").cause is Cause.ON_ITS_WAY


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        (-1, "the group has not finished anything of this queue; "),
        (1, "the group is at offset 1, 2 places before it; "),
        (2, "the group is at offset 2, 1 place before it; "),
        (3, "the group is at offset 3, so this is the next message that it finishes; "),
    ],
)
def test_how_far_the_group_is_from_a_message_on_its_way(offset: int, says: str) -> None:
    facts = StoredFacts(stored(Message("T", b""), 0, 3), True, 0, 0, 5)
    found = explained(facts, replace(FACTS, offset=offset))
    assert found.cause is Cause.ON_ITS_WAY
    assert found.steps[-1].detail == f"{says}member m works on it, or on one before it"


@pytest.mark.parametrize(
    "reason", [each for each in FilterReason if each is not FilterReason.MATCHED]
)
def test_why_a_filter_leaves_a_message_out_is_told_in_words(reason: FilterReason) -> None:
    facts = StoredFacts(stored(Message("T", b""), 0, 3), True, 0, 0, 5)
    skips = Subscription.where("support.predicates:is_even", "skip")
    behind = PlaceHistory((Stretch(Happening.PASSED, None),), is_ahead=False)
    for history in (AHEAD, behind):
        group = replace(FACTS, history=history, subscription=skips)
        found = explained(facts, group, FilterVerdict(reason, ()))
        assert found.cause.name == reason.name
        assert found.steps[-1].detail == f"the filter rejects it: {found.cause.meaning}"


def explained(
    stored_facts: StoredFacts, facts: GroupFacts = FACTS, verdict: FilterVerdict = MATCHED
) -> Explanation:
    way = explain_stored(stored_facts, "g", facts, lambda _: verdict, WITHOUT)
    return Explanation.of(way, stored_facts.message.offset_message_id)


def test_random_messages_and_filters_have_the_cause_that_a_plain_look_gives(
    node: LocalNode, rng: random.Random
) -> None:
    messages = [
        Message(
            "Trade",
            b"x",
            tags=rng.choice([None, "Aa", "BB", "C"]),
            keys=(f"k{number}",),
            properties={"a": rng.choice(["1", "7", "5.5", "5d"])} if number % 3 else {},
        )
        for number in range(60)
    ]
    send(node, *messages)
    subscriptions = [
        Subscription.tags("Aa || C"),
        Subscription.sql("a > 5"),
        Subscription.sql("a > 5 OR TAGS = 'C'"),
    ]
    for number, subscription in enumerate(subscriptions):
        group = f"g{number}"
        consume(node, subscription, group)
        for message in messages:
            found = inquire(node, message.keys[0], group)
            assert found.cause is plain_cause(subscription, message)


def plain_cause(subscription: Subscription, message: Message) -> Cause:
    if subscription.expression_type == "TAG":
        wanted = [tag.strip() for tag in subscription.expression.split("||")]
        if message.tags in wanted:
            return Cause.DELIVERED
        collides = tags_code(message.tags) in map(tags_code, wanted)
        return Cause.TAG_COLLISION if collides else Cause.TAG_MISMATCH
    properties = dict(message.properties)
    if message.tags:
        properties["TAGS"] = message.tags
    try:
        value = subscription.compiled().evaluate(properties)
    except FilterEvaluationError:
        return Cause.SQL_ERROR
    return {True: Cause.DELIVERED, False: Cause.SQL_FALSE, None: Cause.SQL_NULL}[value]
