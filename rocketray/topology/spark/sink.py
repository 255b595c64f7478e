"""Spark sinks: the process that owns a Spark session and runs the queries of ``@app.sink``.

Invariants
  1. Each sink has a checkpoint of its own; a query always resumes from it.
  2. A sink's data and checkpoint are absolute paths, because Spark's workers have another current
     directory.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rocketray.actors.runtime.signal_handlers import stop_signals
from rocketray.cluster import Cluster, chosen_node
from rocketray.errors import ConfigError, StoreError, StreamError, TopicNotFoundError
from rocketray.topology.app.sink_spec import SinkSpec, add_sink
from rocketray.topology.ranges.topic_choice import named
from rocketray.topology.ranges.topic_queues import TopicQueues

from .failures import describe_failure
from .session import check_callbacks, spark_session
from .sink_runner import BatchFunction, QueryProgress, RestartPolicy, SinkRunner, SinkState
from .source_columns import Projection
from .source_options import parse_options

__all__ = ["RestartPolicy", "SinkHost", "SinkState", "SinkStatistics", "committed_files"]

_LOOK_AGAIN_S = 0.25  # bounds how long a signal, a failure or a new topic goes unseen

logger = logging.getLogger(__name__)
_METADATA = "_spark_metadata"
_LOG_NAME = re.compile(r"(\d{1,18})(\.compact)?\Z")
_LOG_MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """The present state of one sink.

    ``batch_id`` and ``batch_rows`` are of its last micro-batch; ``lag`` counts the messages that it
    has not read yet, whether they match or not. All three are None before the first.
    """

    name: str
    state: SinkState
    restarts: int
    batch_id: int | None
    batch_rows: int | None
    lag: int | None
    error: str | None


class SinkHost:
    """Runs sinks on one Spark session. Its methods are called from one thread.

    The session is started when it is first needed, and stopped with the host, unless one is given.
    """

    def __init__(
        self,
        sinks: Iterable[SinkSpec] | Mapping[str, SinkSpec],
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
            sinks: the sinks to run, as ``app.sinks``; their names differ.
            data: the node's data directory, by default as for every program (data_directory.py).
            cluster: the cluster's name in place of its data directory, as of a Client.
            ray_address: the Ray of the cluster.
            checkpoints: the directory for sinks without a checkpoint of their own, by name.
            session: a session to use and leave running.
            open_session: starts a session, by default :func:`spark_session` with its defaults.
            restarts: the restart policy of failed queries.

        Raises:
            ConfigError: two sinks have one name, or one checkpoint; or a data directory and a
                cluster are both given.
        """
        node = chosen_node(data, cluster, ray_address)
        self._node = node.absolute() if isinstance(node, Path) else node
        self._checkpoints = Path(checkpoints).absolute()
        self._specs: dict[str, SinkSpec] = {}
        for spec in sinks.values() if isinstance(sinks, Mapping) else sinks:
            add_sink(self._specs, spec, self._checkpoint_of)
        self._session = session
        self._owns_session = session is None
        self._open_session = open_session or (lambda: spark_session("rocketray"))
        policy = restarts or RestartPolicy()
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
            try:
                self._await_topics(stopping.event)
                if not stopping.event.is_set():
                    self._open()
                    stopping.take_back()  # Spark has replaced them by its own handler
                    self.start()
                    self._watch(stopping.event)
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
                assert runner.error is not None
                raise StreamError(
                    f"sink {runner.name!r} failed for good after {runner.restarts} restarts: "
                    f"{describe_failure(runner.error)}"
                ) from runner.error

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

    def _await_topics(self, stopping: threading.Event) -> None:
        topics = {topic: None for spec in self._specs.values() for topic in spec.topics}
        for topic in topics:
            is_told = False
            while not stopping.is_set():
                try:
                    TopicQueues(self._node, named(topic))
                    break
                except TopicNotFoundError as error:
                    if not is_told:
                        logger.warning("sinks wait for a topic: %s", error)
                        is_told = True
                    stopping.wait(_LOOK_AGAIN_S)

    def _watch(self, stopping: threading.Event) -> None:
        while not stopping.wait(_LOOK_AGAIN_S):
            try:
                self.check()
            except StreamError as error:
                raise error from None  # Spark's own pages add nothing to it
            if all(runner.state is SinkState.FINISHED for runner in self._runners.values()):
                return

    def _open(self) -> SparkSession:
        if self._session is None:
            self._session = self._open_session()
        return self._session

    def _stop_queries(self) -> None:
        with ExitStack() as stack:  # stops each, even if another one fails
            for runner in reversed(self._runners.values()):
                stack.callback(runner.stop)

    def _opener(self, spec: SinkSpec) -> Callable[[Mapping[str, Any]], StreamingQuery]:
        def open_query(trigger: Mapping[str, Any]) -> StreamingQuery:
            session = self._open()
            frame = self._frame(session, spec)
            if spec.is_foreach_batch:
                check_callbacks(session)
                self._functions[spec.name].open()
                writer = frame.writeStream.foreachBatch(self._functions[spec.name])
            else:
                writer = _writer_of(spec, frame)
            checkpoint = self._checkpoint_of(spec)
            named = writer.queryName(spec.name).option("checkpointLocation", checkpoint)
            return named.trigger(**trigger).start()

        return open_query

    def _frame(self, session: SparkSession, spec: SinkSpec) -> DataFrame:
        """Return the sink's stream, after checks that a query would make too late."""
        self._queues(spec)
        options = _place_options(self._node) | spec.source_options()
        reader = session.readStream.format("rocketray").options(**options)
        frame = (reader if spec.schema is None else reader.schema(spec.schema)).load()
        Projection.of(frame.schema, parse_options(options, {}).columns)
        return frame

    def _queues(self, spec: SinkSpec) -> TopicQueues:
        return TopicQueues(self._node, named(",".join(spec.topics)))

    def _checkpoint_of(self, spec: SinkSpec) -> str:
        if spec.checkpoint is None:
            return str(self._checkpoints / spec.name)
        is_uri = "://" in spec.checkpoint
        return spec.checkpoint if is_uri else str(Path(spec.checkpoint).absolute())

    def _statistics_of(self, runner: SinkRunner) -> SinkStatistics:
        progress = runner.progress()
        error = runner.error
        return SinkStatistics(
            name=runner.name,
            state=runner.state,
            restarts=runner.restarts,
            batch_id=progress.batch_id if progress else None,
            batch_rows=progress.input_rows if progress else None,
            lag=self._lag(self._specs[runner.name], progress) if progress else None,
            error=describe_failure(error) if error else None,
        )

    def _lag(self, spec: SinkSpec, progress: QueryProgress) -> int:
        total = 0
        for (topic, queue_id), held in self._queues(spec).bounds().items():
            done = progress.end_offset.get(topic, {}).get(str(queue_id), held.minimum)
            total += held.gaps.count(done, held.visible)
        return total


def _place_options(node: Path | Cluster) -> dict[str, str]:
    """Return the options of the source that name the node."""
    if isinstance(node, Path):
        return {"data": str(node)}
    address = {} if node.ray_address is None else {"rayAddress": node.ray_address}
    return {"cluster": node.name} | address


def _writer_of(spec: SinkSpec, frame: DataFrame) -> DataStreamWriter:
    """Return the query that the sink's function describes, not started."""
    writer: object = spec.function(frame)
    if isinstance(writer, StreamingQuery):
        writer.stop()
        raise ConfigError(
            f"sink {spec.name!r} started its query; return df.writeStream… without .start(): "
            "the name, the checkpoint and the trigger are added to it first"
        )
    if not isinstance(writer, DataStreamWriter):
        raise ConfigError(
            f"sink {spec.name!r} returned {type(writer).__name__}; with one argument it returns "
            "df.writeStream…, not started"
        )
    return writer


def committed_files(path: str | Path) -> list[Path]:
    """Return the files under *path* that finished micro-batches wrote, in the order of writing.

    A killed query leaves files that no batch has committed, some of them empty, beside the
    committed ones. Those are listed in ``_spark_metadata``: one file a batch, named after its
    number, and at intervals one that sums up all before it, named ``<number>.compact``. Each starts
    with a line ``v1`` and has a JSON object a line.

    Raises:
        ConfigError: no streaming query has ever written to *path*.
        StoreError: the sink's log is broken or of an unknown form.
    """
    metadata = Path(path) / _METADATA
    if not metadata.is_dir():
        raise ConfigError(
            f"{path} has no {_METADATA}, so no streaming query has written there; give the "
            "directory of the sink's .option('path', …)"
        )
    added: dict[Path, None] = {}
    for log in _logs(metadata):
        for file, action in _entries(log):
            if action == "delete":
                added.pop(file, None)
            else:
                added[file] = None
    return list(added)


def _logs(metadata: Path) -> list[Path]:
    """Return the newest summary and the batches after it, in order, none missing."""
    compact: dict[int, Path] = {}
    single: dict[int, Path] = {}
    for file in metadata.iterdir():
        match = _LOG_NAME.match(file.name)
        if match:
            (compact if match[2] else single)[int(match[1])] = file
    last = max(compact, default=-1)
    after = sorted(number for number in single if number > last)
    if after != list(range(last + 1, last + 1 + len(after))):
        raise StoreError(f"{metadata}: a batch after {last} is missing; restore it from a copy")
    summary = [compact[last]] if compact else []
    return summary + [single[number] for number in after]


def _entries(log: Path) -> Iterator[tuple[Path, str]]:
    size = log.stat().st_size
    if size > _LOG_MAX_BYTES:
        raise StoreError(f"{log} has {size} bytes; a sink's log has at most {_LOG_MAX_BYTES}")
    version, *lines = log.read_text(encoding="utf-8").splitlines() or [""]
    if version != "v1":
        raise StoreError(f"{log} has version {version[:20]!r}; only v1 is supported")
    for line in lines:
        try:
            entry = json.loads(line)
            url = urlsplit(entry["path"])
            action = str(entry["action"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{log} has an invalid entry: {error!r}") from None
        if url.scheme != "file":
            raise StoreError(f"{log} names {entry['path']!r}; only files of this machine are read")
        yield Path(unquote(url.path)), action
