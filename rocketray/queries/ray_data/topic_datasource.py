"""A topic as a bounded dataset of Ray Data: a datasource that reads ranges of its queues.

Invariants
  1. The range of each queue is fixed when the datasource is made, so a dataset that is executed
     again reads the same messages.
  2. Messages stay in Arrow columns: no Python object is made for a row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from rocketray.actors.client.connection import Connection
from rocketray.base.cluster import Cluster, chosen_node
from rocketray.base.names import check_topic
from rocketray.broker.fetching.range_reader import tell_doubts
from rocketray.broker.fetching.read_plan import ReadPlan
from rocketray.errors import NodeNotRunningError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.division import Division, divide
from rocketray.queries.ranges.filter_lookup import find_filter
from rocketray.queries.ranges.offset_rules import EARLIEST, LATEST
from rocketray.queries.ranges.planning import plan_batch
from rocketray.queries.ranges.range_tasks import TaskRanges, placed, read_ranges
from rocketray.queries.ranges.topic_choice import TopicChoice
from rocketray.queries.ranges.topic_queues import TopicQueues
from rocketray.runtime.ray_process.ray_runtime import has_ray
from rocketray.store.reading.columns import column_schema

from .read_options import ReadOptions, offset_rule, read_plan

logger = logging.getLogger(__name__)

_TASK_MESSAGES = 20_000  # some 30 ms of reading, as much as a task of Ray Data costs
_MESSAGE_BYTES = 256  # a guess, by which Ray Data chooses the number of tasks


class TopicDatasource(Datasource):  # type: ignore[misc]  # Ray has no types
    """What a topic holds now, for ``ray.data.read_datasource``; see :func:`read_topic`.

    Ray pickles it with the dataset, so it holds plain values.
    """

    def __init__(self, topic: str, **options: Unpack[ReadOptions]) -> None:
        """Look up what the queues hold, and fix the range of each; see :class:`ReadOptions`.

        Raises:
            ConfigError: an option is unknown, or cannot be used as given.
            FilterSyntaxError: the filter does not parse.
            TopicNotFoundError: there is no such topic.
            NodeNotRunningError: the cluster does not run.
            OffsetOutOfRangeError: an offset is not in its queue.
        """
        super().__init__()
        node = chosen_node(options.get("data"), options.get("cluster"), options.get("ray_address"))
        where = node if isinstance(node, Cluster) else node.absolute()

        def look_up(name: FilterName) -> Subscription:
            _join_ray(node)
            return find_filter(where, check_topic(topic), name).subscription

        self._plan = read_plan(options, look_up)
        start, end = options.get("start_offset", "earliest"), options.get("end_offset", "latest")
        starting = offset_rule(topic, start, "start_offset", others=EARLIEST)
        ending = offset_rule(topic, end, "end_offset", others=LATEST)
        _join_ray(node)
        queues = TopicQueues(where, TopicChoice(topic, (check_topic(topic),)))
        self._bounds = queues.bounds()
        starts = queues.offsets(starting, "start_offset", self._bounds)
        ends = queues.offsets(ending, "end_offset", self._bounds)
        self._ranges = plan_batch(starts, ends)
        self._places = {part.key: queues.place(part.key) for part in self._ranges}
        self._told = set[str]()
        if self._ranges and not self.supports_distributed_reads:
            first = self._ranges[0]
            # Here and not in a task, whose log the program may not see.
            tell_doubts(self._places[first.key].data, self._plan, first, logger.warning)
            self._told.add(topic)

    def get_name(self) -> str:
        """Return the name of the read in Ray's output."""
        return "Topic"

    def estimate_inmemory_data_size(self) -> int:
        """Return a guess: what a message has is not known before it is read."""
        return self._count() * _MESSAGE_BYTES

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether a task may run on any machine: not where the files have no fetch service."""
        return all(place.service is not None for place in self._places.values())

    def supports_projection_pushdown(self) -> bool:
        """Return True: columns that the dataset drops at once are not read."""
        return True

    def get_projection_map(self) -> dict[str, str]:
        """Return the columns that are read, each by its own name."""
        return {name: name for name in self._plan.columns}

    def apply_projection(self, projection_map: dict[str, str] | None) -> TopicDatasource:
        """Return this with fewer columns; with none of them there would be no rows to count."""
        if projection_map is None:
            return self
        kept = tuple(name for name in projection_map if name in self._plan.columns)
        projected = copy(self)
        # Private, but of a copy of this object.
        projected._plan = replace(self._plan, columns=kept or ("queueOffset",))  # noqa: SLF001
        return projected

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        """Return about *parallelism* tasks, or fewer if each would have few messages."""
        del data_context
        # Rounded up, so that there are no more tasks than *parallelism* because of a rest.
        most = max(_TASK_MESSAGES, -(-self._count() // parallelism))
        tasks = divide(self._ranges, self._bounds, Division(max_records=most))
        schema = column_schema(self._plan.columns)
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
        return [
            ReadTask(partial(_blocks, parts, self._plan), unknown, schema, per_task_row_limit)
            for parts in placed(tasks, self._places.__getitem__, set(self._told))
        ]

    def _count(self) -> int:
        """Return how many messages the ranges have, before the filter."""
        return sum(
            self._bounds[part.key].gaps.count(part.start, part.stop) for part in self._ranges
        )


def read_topic(
    topic: str,
    *,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    **options: Unpack[ReadOptions],
) -> ray.data.Dataset:
    """Return what *topic* holds now as a dataset, with a task for each range of a queue.

    It is lazy: messages are read when the dataset is used. The tasks run in the Ray of this
    process; if it has none yet, in the node's if it runs, else in one that Ray Data starts.

    Args:
        topic: the topic.
        override_num_blocks: the number of blocks; Ray Data's own choice by default.
        concurrency: the most tasks at a time; for Ray Data's further arguments give it
            ``ray.data.read_datasource(rr.ray_data.TopicDatasource(topic), …)``.
        **options: see :class:`ReadOptions`; raises as :class:`TopicDatasource`.
    """
    return ray.data.read_datasource(
        TopicDatasource(topic, **options),
        override_num_blocks=override_num_blocks,
        concurrency=concurrency,
    )


def _blocks(parts: TaskRanges, plan: ReadPlan) -> Iterator[pa.Table]:
    """Yield the messages of a task, in Ray's process."""
    for batch in read_ranges(parts, plan):
        yield pa.Table.from_batches([batch])


def _join_ray(node: Path | Cluster) -> None:
    """Join the Ray of a node that runs, unless this process has a Ray: else Ray starts another."""
    if isinstance(node, Path) and not has_ray():
        with suppress(NodeNotRunningError):
            # Without its node the files are read all the same, and Ray Data starts a Ray of its
            # own.
            Connection.to(node)
