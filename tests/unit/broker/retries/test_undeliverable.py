"""Delayed messages that nobody ever takes: they are dead letters, and keep no other from going."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.schedules import Waiting

from rocketray.base.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.errors import InvalidMessageError, TopicNotFoundError
from rocketray.message import Message


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(tmp_path)
    yield made
    made.close()


def test_messages_for_a_topic_that_is_gone_are_dead_letters(
    waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(what: str) -> None:
        if what == "forward gone/0":
            raise TopicNotFoundError("gone")

    waiting.before = refuse
    lost = waiting.send_level(1, "gone")
    other = waiting.send_level(1)
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == [other.key]
    assert waiting.keys("%DLQ%CID_RMQ_SYS_SCHEDULE") == [lost.key]
    assert waiting.schedule.given_up == 1
    assert "gone/0 cannot be delivered: " in caplog.text
    waiting.start().step(waiting.clock.now_ms)
    assert waiting.schedule.given_up == 0


def test_one_message_that_a_target_refuses_takes_no_other_with_it(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [waiting.send_level(1) for _ in range(7)]
    forward = waiting.forward

    def refuse_third(topic: str, queue_id: int, messages: list[Message]) -> None:
        keys = [message.properties["UNIQ_KEY"] for message in messages]
        if topic == "trade" and sent[2].key in keys:
            raise InvalidMessageError("refused")
        forward(topic, queue_id, messages)  # type: ignore[arg-type]

    monkeypatch.setattr(waiting, "forward", refuse_third)
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == [one.key for one in sent if one is not sent[2]]
    assert waiting.schedule.given_up == 1


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        (SCHEDULE_TOPIC, {}),
        (SCHEDULE_TOPIC, {"DELAY": "1", "REAL_TOPIC": "trade"}),
        (TIMER_TOPIC, {"TIMER_DELIVER_MS": "x", "REAL_TOPIC": "no/name", "REAL_QID": "1"}),
        (TIMER_TOPIC, {"TIMER_DELIVER_MS": "9" * 40}),
    ],
)
def test_a_message_that_belongs_nowhere_is_a_dead_letter(
    waiting: Waiting, topic: str, properties: dict[str, str]
) -> None:
    waiting.put(Message(topic, b"", properties=properties, unique_key="L"), (topic, 0))
    sent = waiting.send_level(1)
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == [sent.key]
    assert waiting.keys("%DLQ%CID_RMQ_SYS_SCHEDULE") == ["L"]
    assert waiting.schedule.given_up == 1
