"""The main job, end to end: a node, a producer, three agents, a Spark sink, queries, a comparison.

Agents and sink run while the messages are sent. In every case all processes that were started are
stopped, and stored messages stay, for ``--resume``.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.ensured_node import ensure_node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.cli.terminal.progress import ProgressDisplay
from rocketray.errors import ConfigError, StreamError
from rocketray.hosting.host_actors import end_hosts
from rocketray.hosting.host_placement import plan_here
from rocketray.hosting.hosting import bring_up
from rocketray.runtime.clock import system_clock_ms

from .app import FLIGHT_COLUMNS, PARQUET, app, late_lake, tally_path
from .data import QUEUES, TOPIC, load_flights
from .expected import count_expected
from .produce import Produced, prepare, produce, queue_ends
from .queries import look_up
from .report import ConsumerResult, DemoReport, SparkResult
from .run_directory import LOG, RunDirectory, open_run
from .tally import Tally, load_tally

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from rocketray.queries.spark.sink import SinkHost

logger = logging.getLogger(__name__)

_APP = "rocketray_demo.app:app"
_AGENTS = ("destinations", "late_from_jfk", "red_eyes")
_POLL_S = 0.2  # each look asks the coordinator, or Spark
_STALL_S = 60.0  # without any progress of a consumer
_SINK_QUIET_S = 30.0  # longer than a micro-batch takes, also the first on a slow machine
# For a run over what is left, if the running query has reported nothing for so long as above.
_SINK_TIMEOUT_S = 120.0
_PREDICATE_LIMIT_MS = 30_000  # far more than it takes: a busy machine must not fail the run
_STDERR = 2


def run_demo(
    *, limit: int | None = None, resume: Path | None = None, data: Path | None = None
) -> DemoReport:
    """Run the job, or the rest of one; return when everything is compared and stopped.

    The arguments are those of :func:`open_run`.

    Raises:
        StreamError: a step failed; the directory can be resumed.
    """
    run = open_run(limit=limit, resume=resume, data=data)
    app.place = run.path
    with (
        stderr_in_file(run.path / LOG) as stderr,
        ProgressDisplay(stderr) as progress,
        ExitStack() as stack,
    ):
        progress.say(f"{'resuming' if run.is_resumed else 'a new run in'} {run.path}")
        background = stack.enter_context(ThreadPoolExecutor(2, "demo"))
        session = background.submit(_start_spark, run)
        loaded = background.submit(_load, run)
        progress.show("starting Ray and Spark")
        node = NodeOptions(
            own_predicates=app.predicates, predicate_time_limit_ms=_PREDICATE_LIMIT_MS
        )
        connection = stack.enter_context(ensure_node(run.path, node, Connection.to))
        _make_topic(connection, run)
        progress.say(f"a node runs, with topic {TOPIC} of {QUEUES} queues")
        progress.show("starting the agents")
        stack.enter_context(_deployed())
        progress.say(f"agents run: {', '.join(_AGENTS)}")
        progress.show("starting Spark's sink")
        host = stack.enter_context(_sinks(run, session))
        progress.say("Spark runs, and its sink reads the topic")
        frame, tables = loaded.result()
        return _Job(run, connection, host, session.result(), frame, progress).work(tables)


@dataclass(frozen=True, slots=True)
class _Job:
    """The steps that follow once everything runs."""

    run: RunDirectory
    connection: ConnectedClient
    host: SinkHost
    session: SparkSession
    frame: pd.DataFrame
    progress: ProgressDisplay

    def work(self, tables: list[pa.Table]) -> DemoReport:
        begun_ms = system_clock_ms()
        produced = produce(self.connection, tables, self.progress.show)
        self.progress.say(f"sent {produced.count:,} messages in {produced.seconds:.1f} s")
        ends = queue_ends(self.connection)
        self._await_agents(ends)
        tallies = {name: load_tally(tally_path(self.run.path, name)) for name in _AGENTS}
        self.progress.say("the agents have finished")
        self._await_sink()
        rows = self._rows_in_parquet()
        self.progress.say(f"Spark wrote, and reads back, {rows:,} rows")
        return self._report(produced, sum(ends), tallies, rows, begun_ms)

    def _await_agents(self, ends: list[int]) -> None:
        """Wait until the offset of each group is at the end of each queue."""
        groups = [app.agents[name].membership.group for name in _AGENTS]

        def left() -> int:
            offsets = {group.group: group.offsets for group in self.connection.groups.all()}
            return sum(
                end - max(offsets.get(group, {}).get(queue, 0), 0)
                for group in groups
                for queue, end in enumerate(ends)
            )

        if not self._has_finished("agents", left, _STALL_S):
            raise StreamError(
                f"the agents made no progress for {_STALL_S:.0f} s, with {left():,} messages "
                f"left; resume with: rocketray demo --resume {self.run.path}"
            )

    def _await_sink(self) -> None:
        """Wait until the running query is at the end; an idle query reports nothing."""
        if not self._has_finished("Spark", lambda: self.host.statistics()[0].lag, _SINK_QUIET_S):
            self.host.process_available(_SINK_TIMEOUT_S)

    def _has_finished(self, who: str, left: Callable[[], int | None], quiet_s: float) -> bool:
        """Wait until no messages are *left*; return False if their number stays for *quiet_s*."""
        before, deadline = None, time.monotonic() + quiet_s
        while (now := left()) != 0:
            if now != before:
                before, deadline = now, time.monotonic() + quiet_s
            elif time.monotonic() > deadline:
                return False
            self.progress.show(f"{who}: {now:,} messages left" if now else f"{who} works")
            time.sleep(_POLL_S)
        return True

    def _rows_in_parquet(self) -> int:
        path = self.run.path / PARQUET
        if not path.exists():
            return 0
        return self.session.read.schema(FLIGHT_COLUMNS).parquet(str(path)).count()

    def _report(
        self,
        produced: Produced,
        total: int,
        tallies: dict[str, Tally],
        parquet_rows: int,
        begun_ms: int,
    ) -> DemoReport:
        expected = count_expected(self.frame)
        return DemoReport(
            directory=self.run.path,
            rows=expected.rows,
            produced=total,
            consumers=tuple(
                ConsumerResult(
                    name,
                    str(app.agents[name].membership.subscription),
                    tally.matched,
                    getattr(expected, name),
                    1000 * produced.count / max(tally.last_ms - begun_ms, 1),
                )
                for name, tally in tallies.items()
            ),
            delays=tallies["destinations"].delays,
            expected_delays=expected.delays,
            spark=SparkResult(
                self.run.path / PARQUET,
                str(late_lake.chosen_filter()),
                parquet_rows,
                expected.late_from_jfk,
            ),
            lookups=tuple(look_up(self.connection, self.frame)),
            produce_per_s=produced.per_second,
        )


def _load(run: RunDirectory) -> tuple[pd.DataFrame, list[pa.Table]]:
    frame = load_flights(run.limit)
    return frame, prepare(frame)


def _start_spark(run: RunDirectory) -> SparkSession:
    """Start Spark in a thread, because the JVM takes as long to start as Ray."""
    from rocketray.queries.spark.session import spark_session  # noqa: PLC0415 - beside Ray's start

    return spark_session("rocketray-demo", work_directory=run.path / "spark", short_lived=True)


def _make_topic(connection: ConnectedClient, run: RunDirectory) -> None:
    if not run.is_resumed and TOPIC in connection.topics.all():
        raise ConfigError(
            f"the node on {run.path} has a topic {TOPIC!r} already; use another --data, "
            f"or remove it: rocketray topics delete {TOPIC} --data {run.path}"
        )
    connection.topics.create(TOPIC, QUEUES)


@contextmanager
def _deployed() -> Iterator[None]:
    """Run the agents in a Ray actor for the block."""
    plan = plan_here(_APP, DEFAULT_CLUSTER, str(Path.cwd()))
    _, hosts = bring_up(plan, detached=False, with_sinks=False)
    try:
        yield
    finally:
        for reason in filter(None, end_hosts(hosts)):
            logger.warning("the agents were ended before they were drained: %s", reason)


@contextmanager
def _sinks(run: RunDirectory, session: Future[SparkSession]) -> Iterator[SinkHost]:
    """Run the sink on Spark in this process for the block."""
    from rocketray.queries.spark.sink import SinkHost  # noqa: PLC0415 - beside Ray's start

    spark = session.result()
    host = SinkHost(
        app.sinks.values(), data=run.path, checkpoints=run.path / "checkpoints", session=spark
    )
    try:
        with host:
            host.start()
            yield host
    finally:
        spark.stop()


@contextmanager
def stderr_in_file(path: Path) -> Iterator[TextIO]:
    """Redirect file 2 of this process and of those that it starts to the end of *path*.

    Yields the previous stderr.
    """
    sys.stderr.flush()
    before = os.dup(_STDERR)
    with os.fdopen(before, "w", buffering=1) as stream, path.open("ab") as file:
        os.dup2(file.fileno(), _STDERR)
        try:
            yield stream
        finally:
            sys.stderr.flush()
            os.dup2(before, _STDERR)
