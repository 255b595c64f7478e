"""A topic's queues are started a few at a time, and again where some did not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.topic_start import (
    PROCESSES_A_STEP,
    STEP_S,
    QueueStarter,
    Started,
    TopicProgress,
    parts_of,
)
from rocketray.errors import ShardUnavailableError, StoreError

TRADE = TopicCatalog().with_topic("Trade", 64).get("Trade")


class BusyNode:
    """A coordinator on a machine that gets *pace* queues to answer within a step."""

    def __init__(self, pace: int) -> None:
        self.pace = pace
        self.now_s = 0.0
        self.begun: set[int] = set()
        self.running: set[int] = set()
        self.asked: list[range] = []
        self.late: list[ShardUnavailableError] = []
        self.closed: dict[str, StoreError] = {}
        self.on_step: Callable[[], None] = lambda: None

    def start(self, wanted: range) -> Started:
        self.asked.append(wanted)
        self.on_step()
        began = [queue for queue in wanted if queue not in self.begun]
        self.begun |= {*began}
        missing = [queue for queue in wanted if queue not in self.running]
        self.running |= {*missing[: self.pace]}
        waiting = missing[self.pace :]
        self.now_s += STEP_S if waiting else 1
        if self.late:
            raise self.late.pop()
        return Started(
            {name: error for name, error in self.closed.items() if int(name[6:]) in wanted},
            tuple(f"Trade/{queue}" for queue in waiting),
            tuple(f"Trade/{queue}" for queue in began),
        )

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def make(self, topic: TopicConfig = TRADE) -> list[TopicProgress]:
        seen: list[TopicProgress] = []
        starter = QueueStarter(
            topic.name,
            parts_of(topic),
            self.start,
            seen.append,
            clock_s=lambda: self.now_s,
            pause=self.pause,
        )
        assert starter.run() == self.closed
        return seen


def test_queues_are_started_a_few_at_a_time_and_counted() -> None:
    node = BusyNode(pace=64)
    seen = node.make()
    assert node.running == {*range(64)}
    assert node.asked == [range(first, first + 8) for first in range(0, 64, 8)]
    assert [(each.running, each.started) for each in seen] == [
        (count, count) for count in range(0, 65, 8)
    ]
    assert {(each.topic, each.queues) for each in seen} == {("Trade", 64)}


@pytest.mark.proves(
    "producers",
    "Creating a topic repeats steps that time out until every queue answers",
)
def test_steps_that_take_too_long_are_asked_again_until_all_answer() -> None:
    """It takes far longer than any call may, and more than the patience with one queue."""
    node = BusyNode(pace=1)
    seen = node.make()
    assert node.running == {*range(64)}
    assert node.now_s > 1000
    assert [each.running for each in seen] == [*range(65)]
    assert seen[-1].started == 64


def test_a_coordinator_that_is_away_or_late_is_asked_again() -> None:
    node = BusyNode(pace=4)
    node.late = [ShardUnavailableError("the coordinator", "Get timed out") for _ in range(3)]
    assert node.make()[-1].running == 64


def test_a_program_that_is_interrupted_in_the_middle_starts_what_is_missing_when_it_asks_again() -> (
    None
):
    node = BusyNode(pace=8)

    def interrupt() -> None:
        if len(node.asked) == 4:
            raise KeyboardInterrupt

    node.on_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        node.make()
    assert node.running == {*range(24)}
    seen = node.make()
    assert node.running == {*range(64)}
    assert (seen[-1].running, seen[-1].started) == (64, 40)
    again = node.make()
    assert (again[-1].running, again[-1].started) == (64, 0)


def test_it_gives_up_when_no_other_queue_answers_and_says_how_to_go_on() -> None:
    node = BusyNode(pace=8)

    def stall() -> None:
        node.pace = 3 if len(node.asked) == 3 else 0 if len(node.asked) > 3 else 8

    node.on_step = stall
    with pytest.raises(ShardUnavailableError) as caught:
        node.make()
    assert str(caught.value) == (
        "shard Trade/19 is unavailable: it does not answer yet; 19 of 64 queues run, and no "
        "other has started for 120 s; to start the rest, repeat the creation; try again in 1000 ms"
    )
    assert node.now_s < 200
    node.on_step = lambda: setattr(node, "pace", 8)
    assert node.make()[-1].running == 64


def test_a_coordinator_that_never_answers_is_given_up_and_its_reason_is_told() -> None:
    node = BusyNode(pace=0)
    node.late = [ShardUnavailableError("the coordinator", "Get timed out") for _ in range(99)]
    with pytest.raises(ShardUnavailableError, match=r"Get timed out; 0 of 64 queues"):
        node.make()


def test_queues_that_stay_closed_are_told_and_stop_no_other() -> None:
    node = BusyNode(pace=8)
    node.closed = {"Trade/3": StoreError("damaged"), "Trade/60": StoreError("damaged, too")}
    assert node.make()[-1].running == 64


def test_a_call_names_the_queues_of_a_few_processes() -> None:
    topic = TopicCatalog().with_topic("%RETRY%g", PROCESSES_A_STEP + 1).get("%RETRY%g")
    assert len(topic.by_process()) == 1
    node = BusyNode(pace=64)
    node.make(topic)
    assert node.asked == [range(PROCESSES_A_STEP + 1)]
