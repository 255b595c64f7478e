from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.shards import Shards

from rocketray.broker.fetching.read_plan import Bounds
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.queries.ranges.offset_rules import LATEST
from rocketray.queries.ranges.time_rules import TimeRule
from rocketray.queries.ranges.topic_choice import matching, named
from rocketray.queries.ranges.topic_queues import TopicQueues


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path, Trade=2) as written:
        yield written


def test_a_topic_that_is_not_there_is_an_error(tmp_path: Path, shards: Shards) -> None:
    where = f"'Nobody' does not exist in {tmp_path}; create it with: rocketray topics create Nobody"
    with pytest.raises(TopicNotFoundError, match=where):
        TopicQueues(tmp_path, named("Trade,Nobody"))


@pytest.mark.proves("spark", "The option `data`")
def test_a_directory_without_a_node_is_named(tmp_path: Path) -> None:
    where = f"{tmp_path}/nowhere is not a node's data directory; "
    with pytest.raises(ConfigError, match=where):
        TopicQueues(tmp_path / "nowhere", named("Trade"))


def test_a_topic_that_is_made_again_has_another_id(tmp_path: Path, shards: Shards) -> None:
    queues = TopicQueues(tmp_path, named("Trade"))
    before = queues.topic_ids()
    shards.create("Trade", 3)
    assert queues.topic_ids() == before

    TopicCatalog.load(tmp_path).without_topic("Trade").without_deleted("Trade").save(tmp_path)
    shards.create("Trade", 2)

    assert queues.topic_ids()["Trade"] != before["Trade"]


@pytest.mark.proves("spark", "Only published messages are read")
def test_bounds_follow_the_shards(tmp_path: Path, shards: Shards) -> None:
    queues = TopicQueues(tmp_path, named("Trade"))
    assert queues.bounds() == {("Trade", 0): Bounds(0, 0), ("Trade", 1): Bounds(0, 0)}

    shards.fill("Trade", 1, 7)
    shards.delete_before("Trade", 1, 3)

    assert queues.bounds() == {("Trade", 0): Bounds(0, 0), ("Trade", 1): Bounds(3, 7)}
    assert queues.ends() == {("Trade", 0): 0, ("Trade", 1): 7}


def test_new_queues_are_seen(tmp_path: Path, shards: Shards) -> None:
    queues = TopicQueues(tmp_path, named("Trade"))
    shards.create("Trade", 3)

    assert [*queues.bounds()] == [("Trade", 0), ("Trade", 1), ("Trade", 2)]


@pytest.mark.proves("spark", "The option `longPollMs`")
def test_waiting_ends_with_the_first_message_of_any_queue(tmp_path: Path, shards: Shards) -> None:
    shards.fill("Trade", 0, 5)
    queues = TopicQueues(tmp_path, named("Trade"))
    timer = threading.Timer(0.1, shards.fill, ("Trade", 1, 1))

    timer.start()
    queues.wait_for_more({("Trade", 0): 5}, 3600)
    timer.join()

    assert queues.ends()["Trade", 1] == 1


@pytest.mark.proves("spark", "The option `longPollMs`")
def test_waiting_ends_with_the_time_and_does_not_begin_when_there_is_more(
    tmp_path: Path, shards: Shards
) -> None:
    shards.fill("Trade", 0, 5)
    queues = TopicQueues(tmp_path, named("Trade"))

    queues.wait_for_more({("Trade", 0): 4}, 3600)

    before = time.monotonic()
    queues.wait_for_more({("Trade", 0): 5}, 0.1)
    assert time.monotonic() - before >= 0.1


@pytest.mark.proves("spark", "The options `topicPattern` and `assign`")
def test_topics_that_match_later_are_read_from_then_on(tmp_path: Path, shards: Shards) -> None:
    queues = TopicQueues(tmp_path, matching("T.*"))
    shards.create("Order", 1)
    shards.create("Ticks", 1)

    assert [*queues.bounds()] == [("Ticks", 0), ("Trade", 0), ("Trade", 1)]


def test_waiting_may_be_for_several_messages(tmp_path: Path, shards: Shards) -> None:
    shards.fill("Trade", 0, 5)
    shards.fill("Trade", 1, 2)
    queues = TopicQueues(tmp_path, named("Trade"))

    queues.wait_for_more({("Trade", 0): 1}, 3600, least=6)

    before = time.monotonic()
    queues.wait_for_more({("Trade", 0): 1}, 0.1, least=7)
    assert time.monotonic() - before >= 0.1


@pytest.mark.proves(
    "spark",
    "The options `startingTimestamp`, `startingOffsetsByTimestamp`, "
    "`startingOffsetsByTimestampStrategy`, `endingTimestamp` and `endingOffsetsByTimestamp`",
)
def test_a_time_is_found_in_the_files_of_a_queue(tmp_path: Path, shards: Shards) -> None:
    for _ in range(5):
        shards.fill("Trade", 0, 1)
    stored = [message.store_timestamp_ms for message in shards.stored("Trade")]
    queues = TopicQueues(tmp_path, named("Trade"))

    def at(time_ms: int) -> dict[tuple[str, int], int]:
        rule = TimeRule("endingTimestamp", time_ms, {}, LATEST)
        return queues.offsets(rule, "endingOffsets", queues.bounds())

    assert at(stored[0]) == {("Trade", 0): 0, ("Trade", 1): 0}
    assert at(stored[-1] + 1) == {("Trade", 0): 5, ("Trade", 1): 0}
    assert at(stored[3]) == {("Trade", 0): 3, ("Trade", 1): 0}
