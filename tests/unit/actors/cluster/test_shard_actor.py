"""A shard's actor that starts again has patience with what keeps its directory closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.actors.cluster.shard_actor import open_patiently, opened_or_closed
from rocketray.actors.shards.owned_shard import OwnedShard
from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.config import StoreConfig
from rocketray.errors import StoreError, StoreLockedError, StreamError, TopicNotFoundError

SMALL = StoreConfig(commit_log_segment_bytes=64 * 1024, index_hash_slots=100, index_entries=1000)


def open_shard(data: Path) -> OwnedShard:
    return OwnedShard(
        data, TopicCatalog().with_topic("T", 1).get("T"), 0, SMALL, clock_ms=lambda: 1
    )


def test_a_shard_is_opened_as_soon_as_the_one_before_it_is_gone(data: Path) -> None:
    before = open_shard(data)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            before.close()

    with pytest.raises(StoreLockedError):
        open_patiently(lambda: open_shard(data), tries=1, sleep=wait)
    with pytest.raises(StoreLockedError):
        open_patiently(lambda: open_shard(data), tries=3, sleep=wait)
    assert len(waits) == 2
    open_patiently(lambda: open_shard(data), tries=3, sleep=wait).close()
    assert len(waits) == 3


@pytest.mark.parametrize(
    ("error", "most"), [(TopicNotFoundError("T"), 1), (OSError(5, "broken"), 4)]
)
def test_a_topic_that_is_gone_is_not_waited_for(error: Exception, most: int) -> None:
    tried: list[int] = []

    def fail() -> OwnedShard:
        tried.append(1)
        raise error

    with pytest.raises((StreamError, OSError)) as raised:
        open_patiently(fail, tries=4, sleep=lambda _: None)
    assert raised.value is error
    assert len(tried) == most


@pytest.mark.parametrize("error", [StoreError("odd"), OSError(5, "odd"), ValueError("odd")])
def test_a_shard_that_cannot_be_opened_says_why_and_its_process_goes_on(error: Exception) -> None:
    def fail() -> OwnedShard:
        raise error

    closed = opened_or_closed(fail, "T/0")
    assert isinstance(closed, str)
    assert closed.startswith("queue T/0 stays closed: ")
    assert "odd" in closed


def test_a_shard_of_a_topic_that_is_gone_does_not_stay() -> None:
    def fail() -> OwnedShard:
        raise TopicNotFoundError("T")

    with pytest.raises(TopicNotFoundError):
        opened_or_closed(fail, "T/0")
