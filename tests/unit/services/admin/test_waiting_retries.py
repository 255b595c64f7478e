"""Failed messages of a group are counted where they wait: in the schedule and in its retry topic."""

from __future__ import annotations

from pathlib import Path

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import retry_topic, sent_back
from rocketray.filters.subscription import EVERYTHING
from rocketray.services.admin.waiting_retries import WaitingRetries, waiting_retries
from rocketray.testing import Broker, Clock

RETRIES = retry_topic("g")


def test_what_is_due_or_finished_does_not_wait(tmp_path: Path) -> None:
    clock = Clock()

    def count(scan_max: int = 1000) -> WaitingRetries:
        return waiting_retries(broker.node, "g", scan_max=scan_max)

    with Broker(tmp_path, clock=clock) as broker, broker.producer() as producer:
        assert count() == WaitingRetries(0, is_exact=True)
        broker.topics.ensure(SCHEDULE_TOPIC, len(DELAY_LEVELS_MS), internal=True)
        for group in ("g", "other"):
            broker.topics.ensure(retry_topic(group), 1, internal=True)
        broker.topics.create("T", 1)
        producer.send_many("T", bodies=[b"1", b"2", b"3"])
        producer.send("T", b"delayed", delay_level=3)
        for number, message in enumerate(broker.stored("T")):
            back = sent_back(message, "other" if number == 2 else "g", 16, "%DLQ%g")
            producer.forward(back.message.topic, back.queue_id, [back.message])
            clock.advance(seconds=1)
        assert count() == WaitingRetries(2, is_exact=True)
        assert count(scan_max=2) == WaitingRetries(1, is_exact=False)
        clock.advance(seconds=7)
        assert [one.body for one in broker.stored(RETRIES)] == [b"1"]
        assert count() == WaitingRetries(2, is_exact=True), "one waits, and one is back"
        clock.advance(seconds=30)
        assert count() == WaitingRetries(2, is_exact=True), "both are back"
        with broker.consumer("g", RETRIES, EVERYTHING) as member:
            [batch] = member.poll(max_messages=1)
            member.commit(RETRIES, 0, batch.next_queue_offset)
        assert count() == WaitingRetries(1, is_exact=True)
