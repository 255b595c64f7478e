"""Dead letters: read, and delivered once more, each once, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketray.base.ack_mode import AckMode
from rocketray.base.marks import FAILURE_REASON, REDRIVEN_FROM, RETRY_TOPIC
from rocketray.broker.retries.dead_letter_api import DeadLettersApi
from rocketray.broker.retries.retry_records import dead_lettered, topic_of
from rocketray.errors import (
    ConfigError,
    FilterError,
    ShardUnavailableError,
    StoreError,
    StoreLockedError,
)
from rocketray.filters.subscription import Subscription
from rocketray.message import ForwardedMessage, Message
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.producers.batch import SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.calls.endpoint import InProcess, ServedObjects
from rocketray.runtime.files.paths import CONTROL_PAGE, shard_directory
from rocketray.runtime.files.state_files import write_json
from rocketray.services.admin import dead_letter_calls, dead_letter_service
from rocketray.services.admin.dead_letter_service import DeadLetterService
from rocketray.services.admin.dead_letters import Journal, letter_boxes, letters, redrive
from rocketray.testing import Broker

pytestmark = pytest.mark.proves(
    "durability",
    "A damaged file of the node's state is rebuilt from its copy, and each other row of that table",
)

ALL = Subscription.tags("*")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as node:
        yield node


def give_up(broker: Broker, count: int, group: str = "g", first: int = 0) -> None:
    """Store *count* dead letters of a group, which came from topic Trade."""
    broker.topics.ensure("Trade", 1)
    topic = f"%DLQ%{group}"
    broker.topics.ensure(topic, 1)
    with broker.producer() as producer:
        for number in range(first, first + count):
            tag = "even" if number % 2 == 0 else "odd"
            message = Message("Trade", b"%d" % number, tag, [f"k{number}"], {"n": str(number)})
            result = producer.send_many("Trade", [message])[0]
            stored = broker.messages.view(result.offset_message_id)
            assert stored is not None
            letter = dead_lettered(stored, group, topic, 16, reason=f"ValueError: {number}")
            producer.forward(topic, 0, [letter.message])


def redriven(broker: Broker, group: str = "g") -> list[int]:
    """What was delivered again, in order."""
    topic = f"%RETRY%{group}"
    if topic not in broker.topics.all():
        return []
    return [int(message.body) for message in broker.stored(topic)]


def test_letters_are_listed_and_shown(broker: Broker) -> None:
    assert letter_boxes(broker.node) == []
    give_up(broker, 5)
    give_up(broker, 2, group="other")
    with broker.producer() as producer:
        redrive(broker.node, producer, "g", Subscription.tags("odd"))
    boxes = [(box.group, box.topic, box.letters, box.redriven) for box in letter_boxes(broker.node)]
    assert boxes == [("g", "%DLQ%g", 5, 2), ("other", "%DLQ%other", 2, 0)]
    assert [box.newest_reason for box in letter_boxes(broker.node)] == [
        "ValueError: 4",
        "ValueError: 1",
    ]
    failed = letters(
        broker.node, "g", Subscription.sql("FAILURE_REASON STARTSWITH 'ValueError: 3'")
    )
    assert [int(letter.body) for letter, _ in failed] == [3]
    shown = [(int(letter.body), done) for letter, done in letters(broker.node, "g", ALL)]
    assert shown == [(0, False), (1, True), (2, False), (3, True), (4, False)]
    found = letters(broker.node, "g", Subscription.sql("n > 2"))
    assert [(int(letter.body), topic_of(letter)) for letter, _ in found] == [
        (3, "Trade"),
        (4, "Trade"),
    ]


@pytest.mark.proves("delivery", "A redriven letter keeps its ids and starts from 0 attempts")
def test_what_is_redriven_keeps_what_it_was_and_begins_anew(broker: Broker) -> None:
    give_up(broker, 2)
    with broker.producer() as producer:
        assert redrive(broker.node, producer, "g", ALL) == 2
    first = broker.stored("%RETRY%g")[0]
    (letter, _), *_ = letters(broker.node, "g", ALL)
    assert (first.body, first.tags, first.keys) == (b"0", "even", ["k0"])
    assert (first.unique_key, first.born_timestamp_ms) == (
        letter.unique_key,
        letter.born_timestamp_ms,
    )
    assert (first.topic, first.reconsume_times) == ("%RETRY%g", 0)
    assert [one.body for one in broker.messages.query("%RETRY%g", "k0")] == [b"0"]
    assert first.properties[RETRY_TOPIC] == "Trade"
    assert first.properties[REDRIVEN_FROM] == letter.offset_message_id
    assert FAILURE_REASON not in first.properties


def test_a_letter_is_redriven_once(broker: Broker) -> None:
    give_up(broker, 10)
    with broker.producer() as producer:
        assert redrive(broker.node, producer, "g", Subscription.sql("n >= 4"), limit=2) == 2
        assert redriven(broker) == [4, 5]
        assert redrive(broker.node, producer, "g", ALL, limit=3) == 3
        assert redrive(broker.node, producer, "g", ALL) == 5
        assert redrive(broker.node, producer, "g", ALL) == 0
        give_up(broker, 1, first=10)
        assert redrive(broker.node, producer, "g", ALL) == 1
    assert redriven(broker) == [4, 5, 0, 1, 2, 3, 6, 7, 8, 9, 10]


class Elsewhere(InProcess):
    """The way of calls from a machine that has no files of the node."""

    def has_files(self, _: str) -> bool:
        return False


def test_from_another_machine_letters_are_the_same_and_redriven_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_service, "_PAGE_LETTERS", 3)
    monkeypatch.setattr(dead_letter_calls, "_CALL_MAX", 2)
    served = ServedObjects()
    served.serve(DeadLettersApi, lambda: DeadLetterService(broker.node))
    there = NodeClient(Path("/not/here"), Elsewhere(served))
    assert letter_boxes(there) == []
    with pytest.raises(ConfigError, match="group 'g' has no dead letters"):
        next(letters(there, "g", ALL))
    give_up(broker, 10)
    some = Subscription.sql("n >= 3")
    with broker.producer() as unused:
        assert redrive(there, unused, "g", some, limit=5) == 5
        assert redriven(broker) == [3, 4, 5, 6, 7]
        for subscription in (ALL, some):
            here = [*letters(broker.node, "g", subscription)]
            assert [*letters(there, "g", subscription)] == here
        assert letter_boxes(there) == letter_boxes(broker.node)
        assert redrive(there, unused, "g", ALL) == 5
        assert redrive(there, unused, "g", ALL) == redrive(broker.node, unused, "g", ALL) == 0


@pytest.mark.proves("delivery", "In a topic with letters of several groups, each group has its own")
def test_in_a_topic_of_several_groups_each_has_its_own_letters(broker: Broker) -> None:
    broker.topics.ensure("Broken", 1)
    broker.topics.ensure("Trade", 1)
    with broker.producer() as producer:
        for number, group in enumerate(["g", "other", "g"]):
            sent = producer.send("Trade", b"%d" % number)
            stored = broker.messages.view(sent.offset_message_id)
            assert stored is not None
            producer.forward("Broken", 0, [dead_lettered(stored, group, "Broken", 0).message])
        producer.send("Broken", b"from elsewhere")
        assert redrive(broker.node, producer, "g", ALL, topic="Broken") == 2
        assert redriven(broker) == [0, 2]
        assert redrive(broker.node, producer, "other", ALL, topic="Broken") == 1
        assert redriven(broker, "other") == [1]


class Ends(Exception):  # noqa: N818 - no error: the process ends
    """The process ends here."""


class Doomed(NodeProducer):
    """A producer whose process ends at a call: before the batch is stored, or right after it."""

    def __init__(self, broker: Broker, survives: int, *, stores: bool) -> None:
        super().__init__(broker.node, clock_ms=broker.clock)
        self._survives = survives
        self._stores = stores

    def forward(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[ForwardedMessage],
        *,
        ack: AckMode | None = None,
    ) -> SendResults:
        self._survives -= 1
        if self._survives >= 0:
            return super().forward(topic, queue_id, messages, ack=ack)
        if self._stores:
            super().forward(topic, queue_id, messages, ack=ack)
        raise Ends


@pytest.mark.proves("delivery", "An interrupted redrive repeats no letter")
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=4), st.integers(1, 8))
def test_an_interrupted_redrive_goes_on_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, ends: list[tuple[int, bool]], count: int
) -> None:
    with Broker(tmp_path_factory.mktemp("node")) as broker, pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocketray.services.admin.dead_letters._BATCH_MAX", 3)
        give_up(broker, count)
        for survives, stores in ends:
            try:
                redrive(broker.node, Doomed(broker, survives, stores=stores), "g", ALL)
            except Ends:
                continue
        with broker.producer() as producer:
            redrive(broker.node, producer, "g", ALL)
        assert redriven(broker) == list(range(count))


def test_letters_that_the_node_does_not_take_now_are_redriven_later(broker: Broker) -> None:
    give_up(broker, 3)
    broker.topics.ensure("%RETRY%g", 1)
    broker.faults.fail_appends(1, "%RETRY%g")
    with broker.producer() as producer:
        with pytest.raises((StoreError, ShardUnavailableError)):
            redrive(broker.node, producer, "g", ALL)
        assert redrive(broker.node, producer, "g", ALL) == 3
    assert redriven(broker) == [0, 1, 2]


def test_two_redrives_of_one_group_exclude_each_other(broker: Broker) -> None:
    give_up(broker, 1)

    class Nosy(Doomed):
        def forward(
            self,
            topic: str,
            queue_id: int,
            messages: Sequence[ForwardedMessage],
            *,
            ack: AckMode | None = None,
        ) -> SendResults:
            with pytest.raises(StoreLockedError, match="is running"):
                redrive(broker.node, self, "g", ALL)
            return super().forward(topic, queue_id, messages, ack=ack)

    assert redrive(broker.node, Nosy(broker, 1, stores=True), "g", ALL) == 1


def test_letters_of_a_topic_that_was_made_again_are_not_taken_for_the_old_ones(
    broker: Broker,
) -> None:
    give_up(broker, 3)
    with broker.producer() as producer:
        redrive(broker.node, producer, "g", ALL)
    broker.topics.delete("%DLQ%g")
    give_up(broker, 2, first=7)
    with broker.producer() as producer:
        assert redrive(broker.node, producer, "g", ALL) == 2
    assert redriven(broker) == [0, 1, 2, 7, 8]


def test_what_is_wrong_is_said(broker: Broker) -> None:
    with broker.producer() as producer:
        with pytest.raises(ConfigError, match="no dead letters"):
            redrive(broker.node, producer, "g", ALL)
        give_up(broker, 1)
        with pytest.raises(FilterError):
            redrive(broker.node, producer, "g", Subscription.sql("n >"))
        path = broker.data / "config" / "redriven" / "%DLQ%g.json"
        identity = Journal(broker.data, broker.topics.get("%DLQ%g"))
        identity.finish(are_stored=False)
        for done in ([7], [[0, 10**15]], [[0, 2**63]]):
            write_json(path, {"storeHost": "10.0.0.2:10911", "done": done})
            with pytest.raises(StoreError, match=r"damaged.*\.bak"):
                redrive(broker.node, producer, "g", ALL)


def test_a_damaged_journal_takes_its_copy_and_is_told(broker: Broker) -> None:
    give_up(broker, 2)
    with broker.producer() as producer:
        redrive(broker.node, producer, "g", ALL, limit=1)
        path = broker.data / "config" / "redriven" / "%DLQ%g.json"
        path.write_bytes(b"{")
        assert [done for _, done in letters(broker.node, "g", ALL)] == [True, False]
        assert broker.node.problems() == []
        assert redrive(broker.node, producer, "g", ALL) == 1
    [line] = broker.node.problems()
    assert line.startswith(f"{path}: it was damaged")


def test_a_group_whose_first_letter_is_being_stored_has_none_yet(broker: Broker) -> None:
    give_up(broker, 1)
    broker.topics.ensure("%DLQ%new", 1)  # the node knows the topic before its files are there
    (shard_directory(broker.data, "%DLQ%new", 0) / CONTROL_PAGE).unlink()
    assert [box.group for box in letter_boxes(broker.node)] == ["g"]
    assert list(letters(broker.node, "new", ALL)) == []
