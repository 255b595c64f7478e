"""A topic as a dataset of Ray Data, on the Ray of a node: read, changed, and written to another."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
import ray.data

import rocketray as rr
from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.errors import ConfigError, TopicNotFoundError

pytestmark = [
    pytest.mark.integration,
    # Ray Data sets its own deprecated options when it is first used.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]

COUNT = 3000


@pytest.fixture(autouse=True)
def _quiet() -> None:
    context: Any = ray.data.DataContext.get_current()
    context.enable_progress_bars = False


@pytest.mark.proves("ray-data", "What was read and changed is written, on the Ray of a node")
def test_what_is_read_changed_and_written_is_what_plain_python_makes(
    node: Node, connection: Connection
) -> None:
    for topic in ("Amounts", "Doubled"):
        connection.topics.ensure(topic, 2)
    sent = [
        rr.Message(
            "Amounts",
            json.dumps({"amount": n}).encode(),
            tags=("odd", "even")[n % 2],
            keys=(f"k{n}",),
        )
        for n in range(COUNT)
    ]
    with connection.producer() as producer:
        producer.send_many("Amounts", sent)
    read = rr.ray_data.read_topic(
        "Amounts", tags="even", columns=["body", "tags", "keys"], data=node.data
    )
    assert read.count() == COUNT // 2

    def doubled(table: pa.Table) -> pa.Table:  # sent by value: workers cannot import this file
        amounts = [2 * json.loads(body)["amount"] for body in table["body"].to_pylist()]
        bodies = [json.dumps({"amount": amount}).encode() for amount in amounts]
        regions = [amount % 3 for amount in amounts]
        return pa.table(
            {
                "body": bodies,
                "tags": table["tags"],
                "keys": table["keys"],
                "region": pa.array(map(str, regions)),
            }
        )

    changed = read.map_batches(doubled, batch_format="pyarrow")
    rr.ray_data.write_topic(changed, "Doubled", data=node.data, property_columns=["region"])

    back = rr.ray_data.read_topic("Doubled", sql="region = '1'", data=node.data).take_all()
    expected = {
        (json.dumps({"amount": 2 * n}).encode(), "even", f"k{n}")
        for n in range(1, COUNT, 2)
        if 2 * n % 3 == 1
    }
    assert len(back) == len(expected)
    assert {(row["body"], row["tags"], row["keys"]) for row in back} == expected


@pytest.mark.proves("ray-data", "A dataset with another column is refused before a message is sent")
def test_a_dataset_that_does_not_fit_is_refused_before_a_message_is_sent(
    node: Node, connection: Connection
) -> None:
    connection.topics.ensure("Doubled", 2)
    before = rr.ray_data.read_topic("Doubled", data=node.data).count()
    rows = ray.data.from_items([{"body": b"x", "price": 3}])
    with pytest.raises(ConfigError, match="column 'price' is neither body"):
        rr.ray_data.write_topic(rows, "Doubled", data=node.data)
    with pytest.raises(TopicNotFoundError, match="'Douled'"):
        rr.ray_data.write_topic(rows, "Douled", data=node.data)
    with pytest.raises(ConfigError, match="a write has no option akk=; did you mean ack="):
        rr.ray_data.write_topic(rows, "Doubled", akk="disk")  # type: ignore[call-arg]
    assert rr.ray_data.read_topic("Doubled", data=node.data).count() == before
