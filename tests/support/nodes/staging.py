"""Staging rows as the tasks of Spark do, and what came of them in their topics."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.broker.fetching.read_plan import Range, ReadPlan
from rocketray.broker.fetching.reading import read_part
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.fragment_file import (
    BatchName,
    Fragment,
    FragmentFile,
    FragmentWriter,
    new_fragment,
)
from rocketray.runtime.files.paths import staged_directory
from rocketray.services.staging.message_rows import MessageRows
from rocketray.services.staging.staging_api import StagedBatch, StagingVerdict
from rocketray.testing import Broker


def rows_of(bodies: Sequence[str], **columns: Sequence[object]) -> pa.RecordBatch:
    """Return rows with these bodies, and further columns."""
    return pa.RecordBatch.from_pydict({"body": [*bodies], **columns})


def stage(
    broker: Broker,
    batch: BatchName,
    *batches: pa.RecordBatch,
    topic: str | None = "Out",
    first_queue: int = 0,
) -> Fragment:
    """Stage rows as one task does; return the fragment."""
    name = new_fragment(batch)
    writer = FragmentWriter(name, FragmentFile(staged_directory(broker.data), name))
    rows = MessageRows(
        lambda name: broker.topics.get(name).queues,
        topic,
        first_queue=first_queue,
        clock_ms=broker.clock,
    )
    for each in batches:
        for frame in rows.frames(each):
            writer.add(frame.topic, frame.queue_id, frame.content, frame.messages)
    fragment, now_ns = writer.finish(), broker.clock() * 1_000_000
    os.utime(staged_directory(broker.data) / fragment.name, ns=(now_ns, now_ns))
    return fragment


def bodies_of(broker: Broker, topic: str = "Out") -> Counter[str]:
    """Return the bodies of all messages of a topic, and how often each is there."""
    return Counter(message.body.decode() for message in broker.stored(topic))


def decide(
    broker: Broker, batch: BatchName, *fragments: Fragment, run: str = "run"
) -> StagingVerdict:
    """Ask the node for the decision about a batch."""
    return broker.node.staging.decide(StagedBatch(batch, run, fragments))


def step(broker: Broker) -> None:
    """Let the node do what is due now."""
    broker._stepped.stored()


def settle(broker: Broker) -> None:
    """Let the node store all that is decided; its pauses after failures pass."""
    for _ in range(100):
        step(broker)
        if not any(work.is_decided for work in broker.node.staging.overview(1).work):
            return
        broker.clock.advance(minutes=1)
    raise AssertionError(broker.node.staging.overview(1))


def stored_bodies(connection: ConnectedClient, topic: str) -> Counter[str]:
    """Return the bodies of all messages of a topic of a real node, and how often each is there."""
    keys = [(topic, queue_id) for queue_id in range(connection.topics.get(topic).queues)]
    looked = connection.ranges.look(keys)
    plan = ReadPlan(Subscription.tags("*"), ("body",), 10_000, fail_on_data_loss=True)
    found: Counter[str] = Counter()
    for key, held in looked.bounds.items():
        part = Range(key, held.minimum, held.visible)
        for batch in read_part(looked.place, plan, part, _warn) if part.start < part.stop else ():
            found.update(body.decode() for body in batch.column("body").to_pylist())
    return found


def _warn(said: str) -> None:
    raise AssertionError(said)
