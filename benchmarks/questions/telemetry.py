"""What do metrics and traces cost an agent that reads a backlog?

The same agent reads the same messages with and without them, in turn, and each figure is the median
of the ratios of neighbouring runs: so a machine that slows down, slows both. ``rocketray metrics``
serves the metrics from a process of its own and is asked every second, as often as it asks the
node; Prometheus asks every 15 s or more. Spans go to OpenTelemetry's SDK and its batch processor,
whose exporter drops them. The messages carry contexts.
"""

from __future__ import annotations

import http.client
import logging
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.errors import ConfigError
from rocketray.services.metrics.metric_families import metrics_of
from rocketray_bench.agents import Handler, Pace, each_value, read_backlog
from rocketray_bench.bench_node import node_processor_s
from rocketray_bench.orders import order_table
from rocketray_bench.report import BenchOptions, Row, bench_directory

_TOPIC, _QUEUES = "Bench", 4
_LIST = 512
_ROWS, _TRACED_ROWS = 2_000_000, 200 * _LIST  # so that no list waits to be full
_TABLE = 50_000
_CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_PAUSE_S = 1.0
_READINGS = 400
_PAIRS = 3  # for each run: a ratio near 1 needs more of them


async def lists(stream: Any, pace: Pace) -> None:
    """Read lists of messages."""
    seen = 0
    async for values in stream.take(_LIST, within=1):
        if not seen:
            pace.begin()
        seen += len(values)
        if seen == pace.wanted:
            pace.end()


def run(options: BenchOptions) -> list[Row]:
    """Measure metrics on a long backlog, and traces on a short one, as they cost much more."""
    counts = {_TOPIC: options.amount(_ROWS), f"{_TOPIC}Traced": options.amount(_TRACED_ROWS)}
    with bench_directory() as directory, ExitStack() as stack:
        node = stack.enter_context(Node(directory / "data"))
        connection = stack.enter_context(node.connection())
        for topic, count in counts.items():
            connection.topics.create(topic, _QUEUES)
            with connection.producer() as producer:
                for first in range(0, count, _TABLE):
                    table = order_table(min(_TABLE, count - first))
                    with_context = table.append_column("traceparent", [[_CONTEXT] * len(table)])
                    names = ["a", "region", "traceparent"]
                    producer.send_many(topic, with_context, property_columns=names)
        many, few = counts.items()
        return [
            *_metrics(connection, options, *many),
            *_traces(connection, options, *few),
        ]


def _metrics(
    connection: Connection, options: BenchOptions, topic: str, count: int
) -> Iterator[Row]:
    off: list[float] = []
    scraped: list[float] = []
    for _ in range(options.runs * _PAIRS):
        off.append(_rate(connection, topic, count, each_value))
        with _scrapes(connection.data):
            scraped.append(_rate(connection, topic, count, each_value))
    yield Row("an agent, without metrics", statistics.median(off), "messages/s", "1 core")
    yield _ratio("metrics asked for every second", scraped, off)
    yield Row("a reading of the metrics", _reading_ms(connection, options), "ms of a core", "0")


def _reading_ms(connection: Connection, options: BenchOptions) -> float:
    """Return the processor time of a reading, of the node and of the process that asks."""
    count = options.amount(_READINGS)
    before = node_processor_s() + time.process_time()
    for _ in range(count):
        metrics_of(connection)
    return 1000 * (node_processor_s() + time.process_time() - before) / count


def _traces(connection: Connection, options: BenchOptions, topic: str, count: int) -> Iterator[Row]:
    for name, handler in (("one by one", each_value), (f"in lists of {_LIST}", lists)):
        rates: dict[str, list[float]] = {"off": []}
        for _ in range(options.runs):
            rates["off"].append(_rate(connection, topic, count, handler))
            for kind, tracing in _tracings().items():
                rate = _rate(connection, topic, count, handler, {"tracing": tracing})
                rates.setdefault(kind, []).append(rate)
        off = rates.pop("off")
        yield Row(
            f"an agent, {name}, without traces", statistics.median(off), "messages/s", "1 core"
        )
        for kind, found in rates.items():
            yield Row(f"{name}, {kind}", statistics.median(found), "messages/s", "1 core")
            yield _ratio(f"{name}, {kind}", found, off)


def _ratio(question: str, rates: Sequence[float], off: Sequence[float]) -> Row:
    pairs = [rate / without for rate, without in zip(rates, off, strict=True)]
    return Row(f"{question}: rate beside without", statistics.median(pairs), "of 1", "1")


def _rate(
    connection: Connection,
    topic: str,
    count: int,
    handler: Handler,
    app_options: Mapping[str, Any] | None = None,
) -> float:
    pace = read_backlog(
        connection, topic, count, handler, app_options=app_options, value_serializer="raw"
    )
    return count / pace.wall_s


def _tracings() -> dict[str, Any]:
    """Return what an app takes for each kind of sampling.

    Raises:
        ConfigError: OpenTelemetry's SDK is not installed.
    """
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import (  # noqa: PLC0415 - an extra
            BatchSpanProcessor,
            SpanExporter,
            SpanExportResult,
        )
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise ConfigError("traces are measured with: pip install opentelemetry-sdk") from error
    from rocketray.tracing import Tracing  # noqa: PLC0415 - imports OpenTelemetry

    class Dropped(SpanExporter):
        def export(self, _: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            """Nothing was kept."""

    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # it warns of each full queue
    found = {}
    for kind, sampler in (("all spans", ALWAYS_ON), ("no span sampled", ALWAYS_OFF)):
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(BatchSpanProcessor(Dropped()))
        found[kind] = Tracing(provider)
    return found


@contextmanager
def _scrapes(data: Path) -> Iterator[None]:
    """Serve the metrics from a process of its own, and ask for them again and again."""
    command = [sys.executable, "-P", "-m", "rocketray", "metrics", "--port", "0"]
    program = subprocess.Popen([*command, "--data", str(data)], stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    line = program.stderr.readline()
    while "http://" not in line:
        assert line, "rocketray metrics has ended"
        line = program.stderr.readline()
    address = urlsplit(line.split("metrics at ")[1].split(";")[0])
    stop = threading.Event()

    def scrape() -> None:
        with closing(http.client.HTTPConnection(address.netloc, timeout=60)) as link:
            link.request("GET", address.path)
            link.getresponse().read()

    def ask() -> None:
        while not stop.wait(_PAUSE_S):
            with suppress(OSError):
                scrape()

    scrape()  # the first one imports
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join()
        program.terminate()
        program.communicate(timeout=60)
