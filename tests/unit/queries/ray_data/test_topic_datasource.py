"""The read tasks of a topic, run in this process, against what its stores have."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ray import cloudpickle
from support.harness.amounts import tenth
from support.nodes.shards import REGIONS, TAGS, Shards

import rocketray as rr
from rocketray.errors import ConfigError, OffsetOutOfRangeError, StoreError, TopicNotFoundError
from rocketray.message import StoredMessage
from rocketray.queries import ray_data
from rocketray.queries.ray_data import topic_datasource
from rocketray.queries.ray_data.topic_datasource import TopicDatasource

COUNTS = (1000, 351, 0)  # the third queue never gets a message


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    with Shards(tmp_path_factory.mktemp("data"), Trade=3, Other=1) as written:
        for queue_id, count in enumerate(COUNTS):
            if count:
                written.fill("Trade", queue_id, count)
        yield written


@pytest.fixture(scope="module")
def messages(shards: Shards) -> list[StoredMessage]:
    return shards.stored("Trade")


def source(shards: Shards, **options: Any) -> TopicDatasource:
    return TopicDatasource("Trade", data=shards.data, **options)


def rows(read: TopicDatasource, parallelism: int = 2) -> list[dict[str, Any]]:
    """What the tasks of *read* return, one task after another."""
    blocks = [block for task in read.get_read_tasks(parallelism) for block in task()]
    return pa.concat_tables(blocks).to_pylist() if blocks else []


def offsets(read: TopicDatasource, parallelism: int = 2) -> list[tuple[int, int]]:
    return sorted((row["queueId"], row["queueOffset"]) for row in rows(read, parallelism))


def places(messages: list[StoredMessage]) -> list[tuple[int, int]]:
    return sorted((message.queue_id, message.queue_offset) for message in messages)


def value_of(message: StoredMessage, column: str) -> Any:
    times = {
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
    }
    if column in times:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=times[column])
    values = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": message.body,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "properties": [*message.properties.items()],
        "msgId": message.offset_message_id,
        "shardingKey": message.properties.get("__SHARDINGKEY"),
    }
    return values[column]


@dataclass(frozen=True)
class Draw:
    """A random read, and the plain filter that is the same."""

    starts: dict[int, int]
    ends: dict[int, int]
    tag: str | None
    region: str
    by: str

    @classmethod
    def of(cls, rng: random.Random) -> Draw:
        starts = {queue: rng.randint(0, count) for queue, count in enumerate(COUNTS)}
        ends = {queue: rng.randint(starts[queue], count) for queue, count in enumerate(COUNTS)}
        by = rng.choice(["nothing", "tags", "sql"])
        return cls(starts, ends, rng.choice(TAGS), rng.choice(REGIONS), by)

    def options(self) -> dict[str, Any]:
        filters = {
            "nothing": {},
            "tags": {"tags": f"{self.tag or 'none'} || BB"},
            "sql": {"sql": f"region = '{self.region}' AND (a IS NULL OR a > 100)"},
        }
        return {"start_offset": self.starts, "end_offset": self.ends, **filters[self.by]}

    def wants(self, message: StoredMessage) -> bool:
        queue = message.queue_id
        if not self.starts[queue] <= message.queue_offset < self.ends[queue]:
            return False
        if self.by == "tags":
            return message.tags is not None and message.tags in (self.tag, "BB")
        is_met = int(message.properties.get("a", 101)) > 100
        return self.by == "nothing" or (is_met and message.properties["region"] == self.region)


@pytest.mark.proves(
    "ray-data",
    "A read has the messages that a plain filter finds, in the columns that were asked for",
)
def test_random_reads_return_what_a_plain_filter_does(
    shards: Shards, messages: list[StoredMessage], rng: random.Random
) -> None:
    every = [*source(shards).get_projection_map(), "msgId", "shardingKey"]
    for _ in range(tenth(100)):
        draw, columns = Draw.of(rng), rng.sample(every, rng.randint(1, len(every)))
        read = source(shards, columns=columns, **draw.options())
        assert rows(read, rng.randint(1, 5)) == [
            {name: value_of(message, name) for name in columns}
            for message in messages
            if draw.wants(message)
        ]


def test_a_filter_may_be_named(shards: Shards, messages: list[StoredMessage]) -> None:
    shards.save_filter("Trade", "pays", rr.Subscription.tags("pay"))
    pays = [message for message in messages if message.tags == "pay"]
    assert offsets(source(shards, filter="pays@1")) == places(pays)
    with pytest.raises(ConfigError, match="topic 'Trade' has no filter 'pay'; did you mean 'pays'"):
        source(shards, filter="pay")
    with pytest.raises(ConfigError, match="names a whole filter"):
        source(shards, filter="pays", tags="pay")


@pytest.mark.proves("ray-data", "Large queues are divided among tasks, and small ones share one")
def test_large_ranges_are_divided_among_the_tasks_and_small_ones_share_one(
    shards: Shards, messages: list[StoredMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(source(shards).get_read_tasks(200)) == 1
    monkeypatch.setattr(topic_datasource, "_TASK_MESSAGES", 100)
    read = source(shards)
    assert len(read.get_read_tasks(200)) == 14  # 10 of the first queue, and 4 of the second
    assert len(read.get_read_tasks(4)) == 5  # 3 and 2, of up to 338 messages
    assert offsets(read, 200) == places(messages)


@pytest.mark.proves("ray-data", "Columns that the dataset drops are not read")
def test_columns_that_a_dataset_drops_are_not_read(shards: Shards) -> None:
    projected = source(shards).apply_projection({"body": "body", "tags": "tags"})
    [task] = projected.get_read_tasks(1)
    assert task.schema.names == ["body", "tags"]
    assert [*rows(projected)[0]] == ["body", "tags"]
    assert len(rows(projected.apply_projection({}))) == sum(COUNTS)


@pytest.mark.proves("ray-data", "`start_offset` and `end_offset`")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start_offset": "latest"}, []),
        ({"end_offset": "earliest"}, []),
        ({"start_offset": {0: 998}}, [(0, 998), (0, 999), *((1, at) for at in range(351))]),
        ({"start_offset": {0: 998, 1: "latest"}}, [(0, 998), (0, 999)]),
        ({"end_offset": {0: 2, 1: 0}}, [(0, 0), (0, 1)]),
        ({"start_offset": 0, "end_offset": {0: 0, 1: 1}}, [(1, 0)]),
    ],
)
def test_offsets_bound_each_queue(
    shards: Shards, options: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    assert offsets(source(shards, **options)) == expected


@pytest.mark.proves("ray-data", "`start_offset` and `end_offset`")
def test_times_bound_each_queue(shards: Shards, messages: list[StoredMessage]) -> None:
    times = sorted({message.store_timestamp_ms for message in messages})
    begin, end = times[len(times) // 3], times[-1]
    expected = [each for each in messages if begin <= each.store_timestamp_ms < end]
    assert 0 < len(expected) < len(messages)
    start = datetime.fromtimestamp(begin / 1000, UTC)
    until = datetime.fromtimestamp(end / 1000, UTC).replace(tzinfo=None)
    read = source(shards, start_offset=start, end_offset=until)
    assert offsets(read) == places(expected)
    later = source(shards, start_offset=start + timedelta(microseconds=1), end_offset=until)
    after = [each for each in expected if each.store_timestamp_ms > begin]
    assert offsets(later) == places(after)


@pytest.mark.proves("ray-data", "A dataset that is executed again reads the same messages")
def test_a_dataset_that_is_executed_again_reads_the_same_messages(tmp_path: Path) -> None:
    with Shards(tmp_path, Trade=1) as written:
        written.fill("Trade", 0, 10)
        read = source(written)
        written.fill("Trade", 0, 10)
        sent = cloudpickle.loads(cloudpickle.dumps(read))  # as Ray does
        assert offsets(read) == offsets(sent) == [(0, at) for at in range(10)]


@pytest.mark.proves("ray-data", "`fail_on_data_loss`")
def test_messages_that_were_deleted_are_an_error_unless_data_loss_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Shards(tmp_path, Trade=1) as written:
        written.fill("Trade", 0, 1000)
        strict, lenient = source(written), source(written, fail_on_data_loss=False)
        left = written.expire("Trade", 0)
        with pytest.raises(StoreError, match=r"were deleted .* fail_on_data_loss=False"):
            rows(strict)
        assert offsets(lenient) == [(0, at) for at in range(left, 1000)]
    assert "were deleted" in caplog.text


def test_a_doubtful_filter_is_told_where_the_program_sees_it(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    read = source(shards, tags="pay|order")
    assert "write pay || order" in caplog.text
    caplog.clear()
    assert rows(read) == []
    assert caplog.text == ""


def test_a_task_runs_beside_the_files_unless_they_have_a_service(shards: Shards) -> None:
    assert not source(shards).supports_distributed_reads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tag": "pay"}, "a read has no option tag=; did you mean tags=?"),
        ({"columns": ["bodi"]}, "no column 'bodi'"),
        ({"columns": []}, "columns= names no column; there are topic"),
        ({"start_offset": "first"}, "start_offset has 'first'; write earliest"),
        ({"end_offset": -1}, "end_offset has -1; write earliest"),
        ({"end_offset": {"0": 1}}, "end_offset has '0'; write earliest"),
        ({"start_offset": {7: 1}}, "start_offset names queue 7 of topic 'Trade'"),
        ({"start_offset": "latest", "end_offset": "earliest"}, "after its end, 0"),
        ({"tags": "a", "sql": "a > 1"}, "one of tags, sql and where"),
    ],
)
def test_what_cannot_be_used_is_refused(
    shards: Shards, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        source(shards, **options)


def test_an_offset_or_a_topic_that_is_not_there_is_named(shards: Shards) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="offset 1001 is out of range"):
        source(shards, start_offset={0: 1001})
    with pytest.raises(TopicNotFoundError, match="did you mean"):
        TopicDatasource("Trad", data=shards.data)


def test_the_names_are_loaded_on_first_use() -> None:
    assert rr.ray_data.TopicDatasource is TopicDatasource
    with pytest.raises(AttributeError, match="no attribute 'read_topics'"):
        _ = rr.ray_data.read_topics  # type: ignore[attr-defined]


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_data, "find_spec", lambda _name: None)
    with pytest.raises(ModuleNotFoundError, match="needs pandas, which Ray Data imports; install"):
        _ = rr.ray_data.read_topic
