from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.schedules import CrashError, Waiting

from rocketray.base.delay import DELAY_LEVELS_MS, at_level
from rocketray.base.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    ShardUnavailableError,
)
from rocketray.message import Message
from rocketray.services.delays.schedule import BATCH_MAX

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(tmp_path)
    yield made
    made.close()


@pytest.mark.proves(
    "delays",
    "A message with a level is delivered when its delay is over, and not before",
)
def test_a_message_goes_when_its_level_is_over_and_not_before(waiting: Waiting) -> None:
    sent = waiting.send_level(3)
    waiting.clock.now_ms += 9_999
    assert waiting.step() == sent.due_ms
    assert waiting.keys() == []
    waiting.clock.now_ms += 1
    waiting.step()
    assert waiting.keys() == [sent.key]
    waiting.clock.now_ms += HOUR
    waiting.step()
    assert waiting.keys() == [sent.key]


@pytest.mark.proves("delays", "A message with a time is delivered at its millisecond")
def test_a_message_goes_at_its_millisecond(waiting: Waiting) -> None:
    sent = waiting.send_at(waiting.clock.now_ms + 40 * DAY)
    waiting.clock.now_ms = sent.due_ms - 1
    waiting.step()
    assert waiting.keys() == []
    waiting.clock.now_ms += 1
    waiting.step()
    assert waiting.keys() == [sent.key]


@pytest.mark.proves(
    "delays",
    "Consumers get the message as it was sent, with the properties of its delay",
)
def test_what_arrives_is_what_was_sent_with_the_properties_of_its_wait(waiting: Waiting) -> None:
    waiting.send_level(2, "trade", 5)
    waiting.clock.now_ms += 5_000
    waiting.step()
    (message,) = waiting.forwarded
    assert (message.topic, message.body) == ("trade", b"body")
    assert message.properties == {
        "UNIQ_KEY": "K1",
        "TAGS": "pay",
        "DELAY": "2",
        "REAL_TOPIC": "trade",
        "REAL_QID": "5",
    }
    assert waiting.keys("trade", 5) == ["K1"]


@pytest.mark.proves(
    "delays",
    "Messages of all levels and times are delivered in the order of their due times",
)
def test_messages_of_all_levels_and_times_go_in_the_order_they_are_due(waiting: Waiting) -> None:
    now = waiting.clock.now_ms
    sent = [waiting.send_level(level) for level in (4, 1, 3)]
    sent += [waiting.send_at(now + delay) for delay in (999, 1001, 12_000, 31_000)]
    waiting.clock.now_ms += DAY
    waiting.step()
    assert waiting.keys() == [one.key for one in sorted(sent, key=lambda one: one.due_ms)]


def test_more_than_a_batch_goes_in_order_too(waiting: Waiting) -> None:
    now, count = waiting.clock.now_ms, 2 * BATCH_MAX + 7
    sent = [waiting.send_at(now + 1 + (index * 7919) % 50_000) for index in range(count)]
    waiting.clock.now_ms += DAY
    waiting.step()
    assert waiting.keys() == [one.key for one in sorted(sent, key=lambda s: (s.due_ms, s.offset))]
    assert len(waiting.schedule) == 0


def test_a_new_process_goes_on_where_the_old_one_was(waiting: Waiting) -> None:
    first, second = waiting.send_level(1), waiting.send_after(2_000)
    waiting.clock.now_ms += 1_000
    waiting.step()
    waiting.start()
    waiting.step()
    assert waiting.keys() == [first.key]
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == [first.key, second.key]


@pytest.mark.proves("delays", "A crash loses and repeats nothing")
@pytest.mark.parametrize("where", ["note", "forward trade/0", "forwarded"])
def test_a_crash_loses_nothing_and_repeats_nothing(waiting: Waiting, where: str) -> None:
    sent = [waiting.send_level(1), waiting.send_level(2), waiting.send_after(1_500)]
    waiting.clock.now_ms += DAY

    def crash(what: str) -> None:
        if what == where:
            raise CrashError

    waiting.before = crash
    with pytest.raises(CrashError):
        waiting.step()
    waiting.before = lambda _what: None
    waiting.start().step(waiting.clock.now_ms)
    assert sorted(waiting.keys()) == sorted(one.key for one in sent)


@pytest.mark.proves("delays", "A power failure repeats at most one batch")
def test_after_a_power_failure_no_more_than_a_batch_comes_twice(waiting: Waiting) -> None:
    sent = [waiting.send_after(1_000) for _ in range(BATCH_MAX + 10)]
    waiting.clock.now_ms += DAY
    batches = 0

    def crash(what: str) -> None:
        nonlocal batches
        batches += what == "forwarded"
        if batches == 2:
            raise CrashError

    waiting.before = crash
    with pytest.raises(CrashError):
        waiting.step()
    waiting.before = lambda _what: None
    waiting.under_way = {}  # the note never came to disk
    waiting.start().step(waiting.clock.now_ms)
    assert len(waiting.keys()) == len(sent) + 10
    assert set(waiting.keys()) == {one.key for one in sent}


@pytest.mark.proves(
    "delays",
    "A clock that is set back delays no message with a delay by more than that delay",
)
def test_a_clock_that_is_set_back_delays_no_message_by_more_than_its_delay(
    waiting: Waiting,
) -> None:
    level, timer = waiting.send_level(5), waiting.send_after(HOUR)
    waiting.step()
    waiting.clock.now_ms -= 300 * DAY
    waiting.step()
    waiting.clock.now_ms += DELAY_LEVELS_MS[4] - 1
    waiting.step()
    assert waiting.keys() == []
    waiting.clock.now_ms += 1
    waiting.step()
    assert waiting.keys() == [level.key]
    waiting.clock.now_ms += HOUR
    waiting.step()
    assert waiting.keys() == [level.key, timer.key]


def test_messages_stored_while_the_clock_is_behind_wait_for_their_delay(waiting: Waiting) -> None:
    waiting.put(Message(SCHEDULE_TOPIC, b""), (SCHEDULE_TOPIC, 2))  # store times stay up here
    waiting.clock.now_ms -= DAY
    late = waiting.send_level(3)
    waiting.step()
    waiting.clock.now_ms += 9_999
    waiting.step()
    assert waiting.keys() == []
    waiting.clock.now_ms += 1
    waiting.step()
    assert waiting.keys() == [late.key]


def test_a_message_that_is_younger_than_the_step_is_not_early(waiting: Waiting) -> None:
    asked_ms = waiting.clock.now_ms
    waiting.clock.now_ms += 70  # the step was held up between looking at the clock and at the log
    sent = [waiting.send_level(1), waiting.send_after(1000)]
    waiting.schedule.step(asked_ms)
    waiting.clock.now_ms = asked_ms + 1069
    waiting.step()
    assert waiting.keys() == []
    waiting.clock.now_ms += 1
    waiting.step()
    assert sorted(waiting.keys()) == sorted(one.key for one in sent)


@pytest.mark.proves("delays", "A message with a time waits for the clock")
def test_a_time_waits_for_the_clock_also_when_it_was_set_back(waiting: Waiting) -> None:
    sent = waiting.send_at(waiting.clock.now_ms + HOUR)
    waiting.step()
    waiting.clock.now_ms -= DAY
    waiting.step()
    waiting.clock.now_ms += HOUR
    waiting.step()
    assert waiting.keys() == []
    waiting.clock.now_ms = sent.due_ms
    waiting.step()
    assert waiting.keys() == [sent.key]


@pytest.mark.proves("delays", "A clock that is set forward delivers due messages once")
def test_a_clock_that_is_set_forward_delivers_what_is_due_once(waiting: Waiting) -> None:
    sent = [waiting.send_level(18), waiting.send_at(waiting.clock.now_ms + 3 * HOUR)]
    waiting.clock.now_ms += DAY
    waiting.step()
    waiting.clock.now_ms -= DAY
    waiting.step()
    waiting.clock.now_ms += DAY
    waiting.step()
    assert waiting.keys() == [one.key for one in sent]


@pytest.mark.proves("delays", "An unavailable target's messages are kept in order")
def test_a_target_that_takes_nothing_keeps_its_messages_and_their_order(waiting: Waiting) -> None:
    def refuse(what: str) -> None:
        if what == "forward shut/0":
            raise ConfigError("the topic has no write permission")

    waiting.before = refuse
    now = waiting.clock.now_ms
    shut = [waiting.send_at(now + 5_000, "shut"), waiting.send_at(now + 1_000, "shut")]
    other = waiting.send_at(now + 3_000)
    waiting.clock.now_ms += 4_000
    wakeup_ms = waiting.step()
    assert waiting.keys() == [other.key]
    assert wakeup_ms == now + 4_000 + 1_000
    for _ in range(10):
        waiting.clock.now_ms += 60_000
        waiting.step()
    assert waiting.keys("shut") == []
    waiting.before = lambda _what: None
    waiting.clock.now_ms += 60_000
    waiting.step()
    assert waiting.keys("shut") == [shut[1].key, shut[0].key]


def test_a_send_of_unknown_outcome_is_looked_up_before_it_is_repeated(waiting: Waiting) -> None:
    sent = waiting.send_level(1)

    def lose_the_answer(what: str) -> None:
        if what == "forwarded":
            raise ShardUnavailableError("shard trade/0", "no answer")

    waiting.before = lose_the_answer
    waiting.clock.now_ms += 1_000
    waiting.step()
    waiting.before = lambda _what: None
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == [sent.key]
    assert len(waiting.schedule) == 0


def test_timers_of_rocketmqs_clients_are_read_as_it_reads_them(waiting: Waiting) -> None:
    now = waiting.clock.now_ms // 1000 * 1000
    place = {"REAL_TOPIC": "trade", "REAL_QID": "0", "TIMER_OUT_MS": str(now + 4_000)}
    waiting.put(Message(TIMER_TOPIC, b"", properties=place, unique_key="R"), (TIMER_TOPIC, 0))
    waiting.clock.now_ms = now + 4_999
    waiting.step()
    assert waiting.keys() == []
    waiting.clock.now_ms = now + 5_000
    waiting.step()
    assert waiting.keys() == ["R"]


@pytest.mark.proves("delays", "A damaged record is discarded, and holds up no other message")
def test_a_damaged_record_keeps_no_other_from_going(waiting: Waiting) -> None:
    sent = [waiting.send_after(1_000) for _ in range(3)]
    log = waiting.places[TIMER_TOPIC, 0]
    entry = log.store.reads.queue_entry(TIMER_TOPIC, 0, 1)
    log.store.flush()
    (segment,) = (log.directory / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(entry.physical_offset)
        file.write(b"\0\0\0\7")
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == [sent[0].key, sent[2].key]
    assert waiting.schedule.given_up == 1


def test_a_recalled_message_never_arrives(waiting: Waiting) -> None:
    sent = [waiting.send_level(1), waiting.send_after(5_000), waiting.send_level(1)]
    waiting.step()
    for one in sent[:2]:
        assert waiting.schedule.recall(one.place, one.offset, one.key)
    waiting.start()
    assert not waiting.schedule.recall(sent[0].place, sent[0].offset, sent[0].key)
    waiting.clock.now_ms += DAY
    waiting.step()
    assert waiting.keys() == [sent[2].key]


@pytest.mark.proves("delays", "A delivered message cannot be recalled")
def test_what_was_delivered_cannot_be_recalled(waiting: Waiting) -> None:
    sent = waiting.send_level(1)
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert not waiting.schedule.recall(sent.place, sent.offset, sent.key)


@pytest.mark.parametrize(
    ("level", "offset", "key"), [(0, 0, "other"), (0, 1, "K1"), (3, 0, "K1"), (17, 0, "K1")]
)
def test_only_messages_that_wait_can_be_recalled(
    waiting: Waiting, level: int, offset: int, key: str
) -> None:
    sent = waiting.send_level(1)
    with pytest.raises(InvalidMessageError, match="no delayed message"):
        waiting.schedule.recall((SCHEDULE_TOPIC, level), offset, key)
    assert waiting.schedule.recall(sent.place, sent.offset, sent.key)


def test_a_topic_that_was_deleted_and_made_again_begins_anew(
    waiting: Waiting, tmp_path: Path
) -> None:
    waiting.send_level(1)
    waiting.clock.now_ms += 1_000
    waiting.step()
    place = (SCHEDULE_TOPIC, 0)
    waiting.places.pop(place).store.close()
    waiting.step()
    (tmp_path / SCHEDULE_TOPIC).rename(tmp_path / "away")
    sent = waiting.send_level(1)
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == ["K1", sent.key]


def test_the_first_offset_that_is_still_needed_is_told(waiting: Waiting) -> None:
    place = (TIMER_TOPIC, 0)
    delays = (1_000, 9_000, 2_000)
    for delay in delays:
        waiting.send_after(delay)
    waiting.step()
    assert waiting.schedule.first_open() == {place: 0}
    waiting.clock.now_ms += 2_000
    waiting.step()
    assert waiting.schedule.first_open() == {place: 1}
    waiting.schedule.let_go()
    waiting.clock.now_ms += 7_000
    waiting.step()
    assert waiting.schedule.first_open() == {place: 3}
    waiting.schedule.let_go()
    assert waiting.keys() == ["K1", "K3", "K2"]


def test_a_message_with_a_large_body_goes_by_itself(waiting: Waiting) -> None:
    message, queue_id = at_level(Message("trade", b"x" * 9_000, unique_key="L"), 1, 0)
    waiting.put(message, (SCHEDULE_TOPIC, queue_id))
    waiting.clock.now_ms += 1_000
    waiting.step()
    assert waiting.keys() == ["L"]


def test_a_recall_finds_what_was_stored_again_before_the_process_died(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, body=bytes(2_000))
    far = waiting.send_after(40 * HOUR)
    for _ in range(20):  # some seven a file
        waiting.send_after(1)
    waiting.clock.now_ms += 1_000
    waiting.step()

    def end(what: str) -> None:
        if what == "rolled":
            raise CrashError

    waiting.before = end
    with pytest.raises(CrashError):
        waiting.schedule.roll()
    waiting.before = lambda _what: None
    waiting.start()
    assert waiting.schedule.recall(far.place, far.offset, far.key), "asked before the first step"
    assert not waiting.schedule.recall(far.place, far.offset, far.key)
    waiting.clock.now_ms += 2 * DAY
    waiting.step()
    assert far.key not in waiting.all_keys()
    waiting.close()
