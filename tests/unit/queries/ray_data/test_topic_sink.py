"""The sink of a dataset, with a client and a producer that only note what is asked of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pytest
import ray

from rocketray.errors import ConfigError, NodeNotRunningError
from rocketray.queries.ray_data import topic_sink
from rocketray.queries.ray_data.topic_sink import TopicSink

JOINED = "127.0.0.1:6379"


class Noting:
    """A client and a producer."""

    address = JOINED
    sent: list[tuple[str, list[Any], dict[str, Any]]]

    def __init__(self, **place: Any) -> None:
        self.data = place.get("data")
        self.node = {"address": self.address} if self.data else None
        self.topics = SimpleNamespace(get=str)

    @classmethod
    def open(cls, **place: Any) -> Self:
        return cls(**place)

    def send_many(self, topic: str, table: pa.Table, **options: Any) -> None:
        self.sent.append((topic, table.to_pylist(), options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> type[Noting]:
    class OfThisTest(Noting):
        """The notes of one test."""

    OfThisTest.sent = []
    context = SimpleNamespace(gcs_address=JOINED)
    monkeypatch.setattr(topic_sink, "Connection", OfThisTest)
    monkeypatch.setattr(topic_sink, "Producer", OfThisTest)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    return OfThisTest


@pytest.mark.proves("ray-data", "`ack` and `property_columns` are those of the producer")
def test_every_block_of_a_task_is_sent_with_the_options(noting: type[Noting]) -> None:
    sink = TopicSink("Trade", data="here", ack="disk", property_columns=["region"])
    rows = [{"body": b"1", "region": "eu"}, {"body": b"2", "region": "us"}]
    blocks = [pa.Table.from_pylist(rows), pd.DataFrame(rows[:1])]

    assert sink.write(blocks, None) == 3
    options = {"ack": "disk", "property_columns": ("region",)}
    assert noting.sent == [("Trade", rows, options), ("Trade", rows[:1], options)]


def test_what_a_node_noted_about_rows_that_were_read_is_left_out(noting: type[Noting]) -> None:
    kind = pa.map_(pa.string(), pa.string())
    pairs = [("a", "1"), ("UNIQ_KEY", "U"), ("RETRY_TOPIC", "X")]
    table = pa.table({"body": [b"1", b"2"], "properties": pa.array([pairs, None], kind)})
    TopicSink("Trade", data="here").write([table, table.slice(1)], None)
    sent = [[row["properties"] for row in rows] for _, rows, _ in noting.sent]
    assert sent == [[[("a", "1")], None], [None]]


@pytest.mark.usefixtures("noting")
def test_a_task_runs_on_the_machine_of_the_directory_or_anywhere() -> None:
    assert not TopicSink("Trade", data="here").supports_distributed_writes
    assert TopicSink("Trade", cluster="orders").supports_distributed_writes


@pytest.mark.proves(
    "ray-data",
    "A program that has joined another Ray gets an error that names both",
)
def test_a_node_in_another_ray_is_named_with_both(noting: type[Noting]) -> None:
    noting.address = "127.0.0.1:9999"
    with pytest.raises(
        NodeNotRunningError, match=r"Ray at 127.0.0.1:9999, and .* at 127.0.0.1:6379"
    ):
        TopicSink("Trade", data=Path("here"))


@pytest.mark.usefixtures("noting")
def test_columns_are_checked_before_a_task_starts() -> None:
    sink = TopicSink("Trade", data="here", property_columns=["region"])
    sink.on_write_start(pa.schema({"body": pa.binary(), "region": pa.string()}))
    with pytest.raises(ConfigError, match="missing: \\['region'\\]"):
        sink.on_write_start(pa.schema({"body": pa.binary()}))
