"""Spark sinks: the process that owns a Spark session and runs the queries of ``@app.sink``.

Invariants
  1. Each sink has a checkpoint of its own; a query always resumes from it.
  2. A sink's data and checkpoint are absolute paths, because Spark's workers have another current
     directory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rocketray.base.cluster import Cluster, chosen_node
from rocketray.base.quantity import counted
from rocketray.errors import ConfigError, StreamError
from rocketray.queries.ranges.topic_choice import named
from rocketray.queries.ranges.topic_queues import TopicQueues
from rocketray.runtime.signal_handlers import stop_signals
from rocketray.topology.app.sink_spec import EARLIEST, SinkSpec, add_sink
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics
from rocketray.topology.app.spark_options import SparkOptions

from .batch_function import BatchFunction
from .failures import describe_failure, place_of_failure
from .session import check_callbacks, enter_thread, spark_session
from .sink_progress import Position, ProgressLog, checkpoint_position
from .sink_runner import RestartPolicy, SinkRunner
from .source_columns import Projection
from .source_options import parse_options
from .torn_start import clear_torn_start

_LOOK_AGAIN_S = 0.25  # bounds how long a signal or a failure goes unseen
_REPORT_EVERY_S = 1.0  # a report asks Spark, and the node for its ends
_NO_CHECKPOINT = "checkpointLocation must be specified"  # Spark's, for a query that is started

Report = Callable[[tuple[SinkStatistics, ...]], object]


class SinkApp(Protocol):
    """The part of an app that a host needs."""

    sinks: dict[str, SinkSpec]
    place: Path | Cluster | None
    spark: SparkOptions


class SinkHost:
    """Runs sinks on one Spark session. Its methods are called from one thread.

    The session is started when it is first needed, and stopped with the host, unless one is given.
    """

    def __init__(
        self,
        sinks: SinkApp | Iterable[SinkSpec] | Mapping[str, SinkSpec],
        *,
        data: Path | str | None = None,
        cluster: str | None = None,
        ray_address: str | None = None,
        checkpoints: Path | str = "checkpoints",
        session: SparkSession | None = None,
        open_session: Callable[[], SparkSession] | None = None,
        restarts: RestartPolicy | None = None,
    ) -> None:
        """Prepare the sinks; nothing runs yet.

        Args:
            sinks: an app, its ``sinks``, or a list; their names differ.
            data: the node's data directory; by default that of the app, else as for every program
                (base/data_directory.py).
            cluster: the cluster's name in place of its data directory, as of a Client.
            ray_address: the Ray of the cluster.
            checkpoints: the directory for sinks without a checkpoint of their own: there each has
                one of its app's id and its name.
            session: a session to use and leave running.
            open_session: starts a session, by default :func:`spark_session` with the app's
                ``SparkOptions``.
            restarts: the restart policy of failed queries.

        Raises:
            ConfigError: there is no sink, or two have one name or one checkpoint; or a data
                directory and a cluster are both given.
        """
        specs, place, options = _parts_of(sinks)
        is_chosen = (data, cluster, ray_address) != (None, None, None)
        node = chosen_node(data, cluster, ray_address) if is_chosen else place or chosen_node()
        self._node = node.absolute() if isinstance(node, Path) else node
        self._checkpoints = Path(checkpoints).absolute()
        self._specs: dict[str, SinkSpec] = {}
        for spec in specs:
            add_sink(self._specs, spec, self._checkpoint_of)
        if not self._specs:
            raise ConfigError("there is no sink to run; declare one with @app.sink(topic)")
        self._session = session
        self._owns_session = session is None
        self._opening = threading.Lock()  # the runners' threads share the session
        self._open_session = open_session or (
            lambda: spark_session(
                "rocketray",
                cores=options.cores,
                memory=options.memory,
                settings=options.settings,
            )
        )
        policy = restarts or RestartPolicy()
        self._read_queues: dict[str, TopicQueues] = {}
        self._functions = {
            name: BatchFunction(spec.function)
            for name, spec in self._specs.items()
            if spec.is_foreach_batch
        }
        self._runners = {
            name: SinkRunner(
                name,
                self._opener(spec),
                policy,
                self._functions[name].close if spec.is_foreach_batch else None,
            )
            for name, spec in self._specs.items()
        }

    def start(self) -> None:
        """Start all sinks with their triggers.

        Raises:
            ConfigError: a sink's function returned a wrong type; none runs then.
            TopicNotFoundError: a sink's topic does not exist.
            StreamError: Spark could not call the sink's function here; see ``check_callbacks``.
        """
        try:
            for name, runner in self._runners.items():
                runner.start(self._specs[name].trigger_arguments())
        except BaseException:
            self._stop_queries()
            raise

    def run(self) -> None:
        """Run the sinks until SIGINT or SIGTERM, or until each has read what is available.

        Waits for topics that do not exist yet: agents may create them later. For the main thread; a
        micro-batch in progress when the signal comes is repeated by the next run.

        Raises:
            As :meth:`start`, but for a topic that does not exist.
            StreamError: a sink failed for good; the others have ended too.
        """
        with stop_signals() as stopping:
            self.run_until(stopping.event)

    def run_until(self, stopping: threading.Event, report: Report = lambda _: None) -> None:
        """Run the sinks as :meth:`run` does, until *stopping* is set, in any thread.

        *report* is called about once a second with the state of each sink. The session is started
        in a thread of its own: in the main thread Spark would replace the handler of SIGINT.
        """
        log = ProgressLog()
        # The first round reports, whatever the clock says.
        reported_s = -_REPORT_EVERY_S
        try:
            for name, runner in self._runners.items():
                runner.start_soon(self._specs[name].trigger_arguments())
            is_over = False
            while not is_over and not stopping.wait(_LOOK_AGAIN_S):
                is_over = self._are_all(SinkState.FINISHED)
                if is_over or time.monotonic() - reported_s >= _REPORT_EVERY_S:
                    reported_s = time.monotonic()
                    statistics = self.statistics()
                    log.note(statistics)
                    report(statistics)
                try:
                    self.check()
                except StreamError as error:
                    raise error from None  # Spark's own pages add nothing to it
        finally:
            self.stop()

    def process_available(self, timeout_s: float | None = None) -> tuple[SinkStatistics, ...]:
        """Bring every sink up to the messages stored now, and leave all of them stopped.

        Raises:
            StreamError: a sink failed for good, or the time is over; the others have ended too.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._stop_queries()
        try:
            for runner in self._runners.values():
                runner.start({"availableNow": True})
            for runner in self._runners.values():
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not runner.join(left):
                    raise StreamError(
                        f"sink {runner.name!r} did not finish in {timeout_s} s; what it has "
                        "written is kept, and the next run continues from there"
                    )
        finally:
            self._stop_queries()
        self.check()
        return self.statistics()

    def check(self) -> None:
        """Raise the error of a sink that has failed for good; its cause is Spark's own."""
        for runner in self._runners.values():
            if runner.state is SinkState.FAILED:
                error = runner.error
                assert error is not None
                if isinstance(error, StreamError) and not runner.has_run:
                    raise error
                place = place_of_failure(error)
                raise StreamError(
                    f"sink {runner.name!r} "
                    + (
                        f"failed for good after {counted(runner.restarts, 'restart')}"
                        if runner.has_run
                        else "does not start"
                    )
                    + f": {describe_failure(error)}{f' ({place})' if place else ''}"
                ) from error

    def statistics(self) -> tuple[SinkStatistics, ...]:
        """Return the state of each sink, in the order of their declaration."""
        return tuple(self._statistics_of(runner) for runner in self._runners.values())

    def stop(self) -> None:
        """End all queries, and the session when it is the host's own.

        Raises:
            StreamError: Spark did not end a query in time; the others have ended.
        """
        try:
            self._stop_queries()
        finally:
            if self._owns_session and self._session is not None:
                self._session.stop()
                self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _are_all(self, state: SinkState) -> bool:
        return all(runner.state is state for runner in self._runners.values())

    def _open(self) -> SparkSession:
        with self._opening:
            if self._session is None:
                self._session = self._open_session()
            return self._session

    def _stop_queries(self) -> None:
        with ExitStack() as stack:  # stops each, even if another one fails
            for runner in reversed(self._runners.values()):
                stack.callback(runner.stop)

    def _opener(self, spec: SinkSpec) -> Callable[[Mapping[str, Any]], StreamingQuery]:
        def open_query(trigger: Mapping[str, Any]) -> StreamingQuery:
            self._queues(spec)  # raises before Spark is started
            session = self._open()
            enter_thread(session)
            frame = self._frame(session, spec)
            if spec.is_foreach_batch:
                check_callbacks(session)
                self._functions[spec.name].open()
                writer = frame.writeStream.foreachBatch(self._functions[spec.name])
            else:
                writer = _writer_of(spec, frame)
            checkpoint = self._checkpoint_of(spec)
            clear_torn_start(session, checkpoint)
            named = writer.queryName(spec.name).option("checkpointLocation", checkpoint)
            return named.trigger(**trigger).start()

        return open_query

    def _frame(self, session: SparkSession, spec: SinkSpec) -> DataFrame:
        """Return the sink's stream, after checks that a query would make too late."""
        options = _place_options(self._node) | spec.source_options()
        reader = session.readStream.format("rocketray").options(**options)
        frame = (reader if spec.schema is None else reader.schema(spec.schema)).load()
        Projection.of(frame.schema, parse_options(options, {}).columns)
        return frame

    def _queues(self, spec: SinkSpec) -> TopicQueues:
        return TopicQueues(self._node, named(",".join(spec.topics)))

    def _checkpoint_of(self, spec: SinkSpec) -> str:
        if spec.checkpoint is None:
            return str(self._checkpoints / spec.owner / spec.name)
        is_uri = "://" in spec.checkpoint
        return spec.checkpoint if is_uri else str(Path(spec.checkpoint).absolute())

    def _statistics_of(self, runner: SinkRunner) -> SinkStatistics:
        spec = self._specs[runner.name]
        progress = runner.progress()
        error = runner.error
        position = progress.end_offset if progress else self._start_of(spec)
        return SinkStatistics(
            name=runner.name,
            topic=spec.topic,
            state=runner.state,
            restarts=runner.restarts,
            batch_id=progress.batch_id if progress else None,
            batch_rows=progress.input_rows if progress else None,
            rows_per_s=progress.rows_per_s if progress else None,
            lag=None if position is None else self._lag(spec, position),
            error=describe_failure(error) if error else None,
            place=place_of_failure(error) if error else None,
        )

    def _start_of(self, spec: SinkSpec) -> Position | None:
        """Return where the first micro-batch of this host begins, if that is known."""
        position = checkpoint_position(self._checkpoint_of(spec))
        is_new = position is not None and not position
        return None if is_new and spec.starting_offsets != EARLIEST else position

    def _lag(self, spec: SinkSpec, position: Position) -> int | None:
        """Count the messages behind *position*; None while the node does not tell its ends."""
        try:
            if spec.name not in self._read_queues:
                self._read_queues[spec.name] = self._queues(spec)
            bounds = self._read_queues[spec.name].bounds()
        except StreamError:
            return None
        total = 0
        for (topic, queue_id), held in bounds.items():
            done = position.get(topic, {}).get(str(queue_id), held.minimum)
            total += held.gaps.count(done, held.visible)
        return total


def _parts_of(
    sinks: SinkApp | Iterable[SinkSpec] | Mapping[str, SinkSpec],
) -> tuple[Iterable[SinkSpec], Path | Cluster | None, SparkOptions]:
    """Return the sinks, the place of their node if they have one, and their session's size."""
    if isinstance(sinks, Mapping):
        return sinks.values(), None, SparkOptions()
    if isinstance(sinks, Iterable):
        return sinks, None, SparkOptions()
    return sinks.sinks.values(), sinks.place, sinks.spark


def _place_options(node: Path | Cluster) -> dict[str, str]:
    """Return the options of the source that name the node."""
    if isinstance(node, Path):
        return {"data": str(node)}
    address = {} if node.ray_address is None else {"rayAddress": node.ray_address}
    return {"cluster": node.name} | address


def _writer_of(spec: SinkSpec, frame: DataFrame) -> DataStreamWriter:
    """Return the query that the sink's function describes, not started."""
    try:
        writer: object = spec.function(frame)
    except AnalysisException as error:
        if _NO_CHECKPOINT not in str(error):
            raise
        raise _started(spec) from None
    if isinstance(writer, StreamingQuery):
        writer.stop()
        raise _started(spec)
    if not isinstance(writer, DataStreamWriter):
        raise ConfigError(
            f"sink {spec.name!r} returned {type(writer).__name__}; with one argument it returns "
            "df.writeStream…, not started"
        )
    return writer


def _started(spec: SinkSpec) -> ConfigError:
    return ConfigError(
        f"sink {spec.name!r} starts its query; return df.writeStream… without .start(): the name, "
        "the checkpoint and the trigger are added to it first"
    )
