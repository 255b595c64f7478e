"""Writing a dataset of Ray Data into a topic, by the batch send of a producer.

At least once: Ray repeats a task that failed, also one that had sent some of its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pyarrow as pa
import ray.data
from ray.data.block import Block, BlockAccessor
from ray.data.datasource import Datasink

from rocketray.actors.client.connection import Connection
from rocketray.base.ack_mode import AckMode, check_ack
from rocketray.base.cluster import chosen_node
from rocketray.base.meant import refuse_unknown
from rocketray.base.names import check_topic
from rocketray.client import Producer
from rocketray.errors import NodeNotRunningError
from rocketray.store.batches.table_columns import check_names
from rocketray.store.batches.taken_on import taken_on_column


class WriteOptions(TypedDict, total=False):
    """The options of a write.

    ``data``, ``cluster``, ``ray_address``: the node, as for a :class:`~rocketray.Client`.
    ``ack``: when a message counts as stored, as for a :class:`~rocketray.Producer`.
    ``property_columns``: the columns that become properties, absent where null.
    """

    data: Path | str | None
    cluster: str | None
    ray_address: str | None
    ack: AckMode | None
    property_columns: Sequence[str]


class TopicSink(Datasink):  # type: ignore[misc]  # Ray has no types
    """A topic, for ``dataset.write_datasink``; see :func:`write_topic`."""

    def __init__(self, topic: str, **options: Unpack[WriteOptions]) -> None:
        """Join the Ray of the node, unless this process has one, and look the topic up.

        Raises:
            ConfigError: an option is unknown, or cannot be used as given.
            TopicNotFoundError: there is no such topic.
            NodeNotRunningError: the node does not run, or not in the Ray of this process.
        """
        super().__init__()
        known = tuple(WriteOptions.__annotations__)
        refuse_unknown("a write has no option", options, known, f"there are {', '.join(known)}")
        place = options.get("data"), options.get("cluster"), options.get("ray_address")
        node = chosen_node(*place)
        self._place: dict[str, Any] = (
            {"data": node.absolute()}
            if isinstance(node, Path)
            else {"cluster": node.name, "ray_address": node.ray_address}
        )
        self._topic = check_topic(topic)
        self._ack = check_ack(options.get("ack"))
        self._property_columns = tuple(options.get("property_columns", ()))
        with Connection.open(**self._place) as client:
            _check_ray(client)
            client.topics.get(topic)

    def get_name(self) -> str:
        """Return the name of the write in Ray's output."""
        return "Topic"

    @property
    def supports_distributed_writes(self) -> bool:
        """Whether a task may run on any machine: a data directory is of this one."""
        return "data" not in self._place

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Check the columns, before a task is started.

        Raises:
            ConfigError: ``body`` is missing, or a column has no place in a message.
        """
        if schema is not None:
            check_names(schema.names, self._property_columns, self._topic)

    def write(self, blocks: Iterable[Block], ctx: Any) -> int:
        """Send the rows of a task, and return their number when all are stored."""
        del ctx
        count = 0
        with Producer(**self._place) as producer:
            for block in blocks:
                table = _taken_on(BlockAccessor.for_block(block).to_arrow())
                producer.send_many(
                    self._topic, table, ack=self._ack, property_columns=self._property_columns
                )
                count += table.num_rows
        return count


def write_topic(
    dataset: ray.data.Dataset,
    topic: str,
    *,
    concurrency: int | None = None,
    **options: Unpack[WriteOptions],
) -> None:
    """Send each row of *dataset* as a message to *topic*, at least once.

    The columns are those of :meth:`Producer.send_many`: ``body``, and optionally ``tags``, ``keys``
    and ``properties``. The tasks run in the Ray of the dataset, which has to be the node's.

    Args:
        dataset: the rows.
        topic: the topic, which exists.
        concurrency: the most tasks at a time.
        **options: see :class:`WriteOptions`; raises as :class:`TopicSink`, and what Ray raises.
    """
    dataset.write_datasink(TopicSink(topic, **options), concurrency=concurrency)


def _taken_on(table: pa.Table) -> pa.Table:
    """Return the rows without what a node noted about the messages that they were, if any."""
    number = table.schema.get_field_index("properties")
    if number < 0 or not pa.types.is_map(table.schema.types[number]):
        return table
    chunks = [taken_on_column(chunk) for chunk in table.column(number).chunks]
    return table.set_column(
        number, "properties", pa.chunked_array(chunks, table.schema.types[number])
    )


def _check_ray(client: Connection) -> None:
    """Raise :class:`NodeNotRunningError` if the node's Ray is not the one of this process."""
    joined = ray.get_runtime_context().gcs_address
    wanted = joined if client.node is None else client.node["address"]
    if joined != wanted:
        raise NodeNotRunningError(
            f"the node on {client.data} runs in the Ray at {wanted}, and this process has joined "
            f"the one at {joined}: write in a process without another Ray: there, this "
            "and read_topic join the node's"
        )
