"""What does the CRC over the whole record cost: storing, reading, filtering and sending?

Records without and with the CRC take turns, and each figure is the median of its turns: processor
time, which other programs disturb less than the clock's. For the node it is that of all its
processes and of this one. A record has the properties of the orders and a unique key; one without
properties has just the key. The producer without the CRC exists only here.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

from rocketray.actors.client.connection import Connection
from rocketray.base.config import StoreConfig
from rocketray.base.quantity import counted
from rocketray.broker.filtering.filter_stream import sql_states
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.dialect import DEFAULT_DIALECT
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.producers import producer as producers
from rocketray.messaging.producers.batcher import BatchSettings
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import ProducerOptions, batch_settings
from rocketray.runtime.clock import system_clock_ms
from rocketray.store.batches.batch_form import EncodedBatch, RecordOptions
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.reader import QueueReader
from rocketray_bench.bench_node import bench_node, node_processor_s, read_queues, touch_bodies
from rocketray_bench.orders import BODY_BYTES, TOPIC, order_body, order_options, order_table
from rocketray_bench.report import BenchOptions, Row, bench_directory

_BATCH = 1024
_BATCHES_BETWEEN_PREPARATIONS = 16
_SQL = "a BETWEEN 10 AND 20 AND region IN ('eu','us')"
_PROPERTIES = ("a", "region")
_SENDS = {1: 2_000, 32: 30_000, 1024: 60_000}
_TURNS_A_RUN = 3
_FEW = Subscription.sql("amount < 10")
_STORED = {BODY_BYTES: 200_000, 1024: 50_000}
_WITH, _WITHOUT = True, False
_TURNS = (_WITHOUT, _WITH)


def run(options: BenchOptions) -> list[Row]:
    """Measure the store alone, then a producer and a member of a node."""
    load = Row("load average before", os.getloadavg()[0], "processes", f"{os.cpu_count()} cores")
    rows = [load]
    for body_bytes, count in _STORED.items():
        rows += _store_rows(options, body_bytes, options.amount(count))
    with bench_node() as connection:
        rows += _node_rows(options, connection)
    return rows


def _store_rows(options: BenchOptions, body_bytes: int, count: int) -> Iterator[Row]:
    what = f"the store alone, bodies of {body_bytes:,} bytes"
    batches = {turn: _batch(body_bytes, with_crc=turn) for turn in _TURNS}
    sizes = {turn: float(batches[turn].sizes.mean()) for turn in _TURNS}
    yield from _compared(f"{what}: a record", "bytes", {t: [sizes[t]] for t in _TURNS}, "1")
    took_ns: dict[str, dict[bool, list[float]]] = {}
    for _ in range(options.runs * _TURNS_A_RUN):
        for turn in _TURNS:
            with bench_directory() as directory:
                for name, each in _store_turn(directory, batches[turn], count):
                    took_ns.setdefault(name, {t: [] for t in _TURNS})[turn].append(each)
    for name, figures in took_ns.items():
        ceiling = options.ceilings.read(sizes[_WITH])
        yield from _compared(f"{what}: {name}", "ns", figures, ceiling)


def _store_turn(directory: Path, batch: EncodedBatch, count: int) -> Iterator[tuple[str, float]]:
    """Store *count* messages and read them; yield what each step takes, in ns a message."""
    batches = max(1, count // _BATCH)
    with MessageStore(directory, StoreConfig(), clock_ms=system_clock_ms) as store:
        spent_s = 0.0
        for number in range(batches):
            if number % _BATCHES_BETWEEN_PREPARATIONS == 0:
                store.prepare_next()
            begun_s = time.process_time()
            store.append(TOPIC, 0, batch)
            spent_s += time.process_time() - begun_s
        yield "put", spent_s / batches / _BATCH * 1e9
        with QueueReader(directory, TOPIC, 0) as reader:
            expression = VectorizedExpression(compile_expression(_SQL, DEFAULT_DIALECT))
            steps: dict[str, Callable[[QueueReader, int], object]] = {
                "filter by SQL92": lambda r, at: sql_states(
                    expression, r, r.entries(at, at + _BATCH)
                ),
                "read bodies": lambda r, at: r.body_array(r.entries(at, at + _BATCH)),
                "read bodies and properties as columns": lambda r, at: read_columns(
                    r, r.entries(at, at + _BATCH), ["body", "properties"]
                ),
            }
            for name, step in steps.items():
                begun_s = time.process_time()
                for at in range(0, batches * _BATCH, _BATCH):
                    step(reader, at)
                yield name, (time.process_time() - begun_s) / batches / _BATCH * 1e9


def _batch(body_bytes: int, *, with_crc: bool) -> EncodedBatch:
    ids = "".join(f"{number:032X}" for number in range(_BATCH)).encode()
    return MeasuredTable(
        TOPIC,
        order_table(_BATCH, body_bytes=body_bytes),
        born_host=("127.0.0.1", 1),
        born_timestamp_ms=system_clock_ms(),
        unique_ids=ids,
        property_columns=_PROPERTIES,
        options=RecordOptions(properties_crc=with_crc),
    ).encode()


def _node_rows(options: BenchOptions, connection: Connection) -> Iterator[Row]:
    """Send single messages and lists, then consume all of it."""
    topics = {turn: f"{TOPIC}{turn:d}" for turn in _TURNS}
    with ExitStack() as opened:
        for topic in topics.values():
            connection.topics.create(topic, 1)
        sender = {
            turn: opened.enter_context(_producer(connection, with_crc=turn)) for turn in _TURNS
        }
        for has_properties, size in itertools.product((False, True), _SENDS):
            count = options.amount(_SENDS[size])
            took_us: dict[bool, list[float]] = {turn: [] for turn in _TURNS}
            for number in range(options.runs * _TURNS_A_RUN + 1):
                for turn in _TURNS:
                    begun_s = _used_s()
                    _send(sender[turn], topics[turn], (count, size), has_properties=has_properties)
                    took = (_used_s() - begun_s) / count * 1e6
                    took_us[turn] += [took] * (number > 0)  # the first is the warm-up
            kind = "with" if has_properties else "without"
            what = f"send, {counted(size, 'message')} a batch, {kind} properties"
            yield from _compared(what, "µs", took_us, options.ceilings.wake())
    yield from _consume_rows(options, connection, topics)


def _producer(connection: Connection, *, with_crc: bool) -> NodeProducer:
    """Return a producer; options of producers cannot leave the CRC out."""

    def without(options: ProducerOptions) -> BatchSettings:
        settings = batch_settings(options)
        return replace(settings, records=replace(settings.records, properties_crc=with_crc))

    with mock.patch.object(producers, "batch_settings", without):
        return NodeProducer(connection)


def _send(
    producer: NodeProducer, topic: str, amount: tuple[int, int], *, has_properties: bool
) -> None:
    """Send *amount*, messages and messages a batch; each is made as it is sent."""
    count, size = amount
    numbers = iter(range(count))
    while some := list(itertools.islice(numbers, size)):
        if size == 1 and has_properties:
            producer.send(topic, order_body(some[0]), **order_options(some[0]))
        elif size == 1:
            producer.send(topic, order_body(some[0]))
        elif has_properties:
            messages = [Message(topic, order_body(at), **order_options(at)) for at in some]
            producer.send_many(topic, messages)
        else:
            producer.send_many(topic, [Message(topic, order_body(at)) for at in some])


def _consume_rows(
    options: BenchOptions, connection: Connection, topics: dict[bool, str]
) -> Iterator[Row]:
    count = sum(map(options.amount, _SENDS.values())) * 2 * (options.runs * _TURNS_A_RUN + 1)
    for name, subscription in (("whole", Subscription.tags("*")), ("by SQL92", _FEW)):
        took_us: dict[bool, list[float]] = {turn: [] for turn in _TURNS}
        for _ in range(options.runs):
            for turn in _TURNS:
                group = f"bench-{time.monotonic_ns()}"
                begun_s = _used_s()
                with connection.consumer(group, topics[turn], subscription) as member:
                    read_queues({member: {0: count}}, touch_bodies)
                    took_us[turn].append((_used_s() - begun_s) / count * 1e6)
        yield from _compared(f"consume, {name}", "µs", took_us, options.ceilings.wake())


def _used_s() -> float:
    """Return the processor seconds that the node and this process have used."""
    return node_processor_s() + time.process_time()


def _compared(
    what: str, unit: str, figures: dict[bool, list[float]], ceiling: str
) -> Iterator[Row]:
    """Yield both medians, and the median of the ratios of adjacent turns."""
    yield Row(f"{what}, without", statistics.median(figures[_WITHOUT]), unit, ceiling)
    yield Row(f"{what}, with", statistics.median(figures[_WITH]), unit, ceiling)
    adjacent = zip(figures[_WITH], figures[_WITHOUT], strict=True)
    ratio = statistics.median(one / other for one, other in adjacent)
    yield Row(f"{what}, with beside without", ratio, "times", "1")
