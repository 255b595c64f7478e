"""A local Spark session, set up according to measurements.

Workers run this interpreter, sockets to them are unix domain sockets, checkpoints are renamed into
place without a forked ``chmod``, and nothing listens outside the loopback interface.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from rocketray.base.environment import process_environ, with_environ
from rocketray.errors import StreamError

from .java import Java, find_java
from .warm_python import python_environ

_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# 7 s of processor time at the start instead of 15: no optimizing compiler, and no threads of a
# parallel collector.
_SHORT_LIVED_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_LOOPBACK = "127.0.0.1"
_SELECTABLE = 1024  # Linux's FD_SETSIZE

logger = logging.getLogger(__name__)


def spark_session(
    app_name: str,
    *,
    environ: Mapping[str, str] | None = None,
    cores: int = 2,
    memory: str = "1g",
    work_directory: Path | None = None,
    short_lived: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session of this process; the first call starts the JVM, in 3 to 5 seconds.

    Args:
        app_name: the application's name in Spark.
        environ: where to look for Java; by default the environment of this process. The JVM
            itself always inherits the latter.
        cores: tasks at the same time.
        memory: the JVM's heap, as Spark writes it (``1g``).
        work_directory: for managed tables and shuffle files; by default Spark's own choice, the
            current directory and /tmp.
        short_lived: for a process of minutes: half the processor time at the start, and less
            speed later, because the JVM compiles only lightly.
        settings: more of Spark's settings; they override ours.

    Raises:
        ConfigError: there is no Java that can run Spark; the message lists what was tried.
    """
    java = find_java(process_environ() if environ is None else environ)
    logger.info("Spark runs on Java %d from %s (%s)", java.version, java.found_by, java.home)
    builder = SparkSession.builder.appName(app_name).master(f"local[{cores}]")
    chosen = spark_settings(cores, memory, work_directory, short_lived=short_lived)
    for name, value in (chosen | dict(settings or {})).items():
        builder = builder.config(name, value)
    with with_environ(_launch_environ(java)):
        return builder.getOrCreate()


def spark_settings(
    cores: int, memory: str, work_directory: Path | None = None, *, short_lived: bool = False
) -> dict[str, str]:
    """Return Spark's settings for a session on one machine; for the arguments see spark_session."""
    java_options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"]
    java_options += _SHORT_LIVED_OPTIONS if short_lived else []
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        # Its web server would take a port and memory in each process with sinks.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.sql.session.timeZone": "UTC",
        # Spark's default of 200 is for clusters: each is a task, in each micro-batch.
        "spark.sql.shuffle.partitions": str(cores),
        # 95 ms a micro-batch instead of 132: the loopback interface costs more than the work.
        "spark.python.unix.domain.socket.enabled": "true",
        # Forks workers that have Numba and the kernels loaded.
        "spark.python.daemon.module": "rocketray.queries.spark.daemon",
        # Renames as the default does, but forks no chmod: 30 ms less for each of two files a batch.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,
        # Hands the filters of a batch to the source (pushed_filters.py).
        "spark.sql.python.filterPushdown.enabled": "true",
        # Stopping a query whose batch hangs raises; by default it waits for ever.
        "spark.sql.streaming.stopTimeout": "60s",
    }
    if work_directory is not None:
        settings["spark.sql.warehouse.dir"] = str(work_directory / "warehouse")
        settings["spark.local.dir"] = str(work_directory / "local")
    return settings


def enter_thread(session: SparkSession) -> None:
    """Make it the session of this thread, where Spark looks for the format of a stream's writer.

    In a thread that did not make the session it would not find formats in Python, such as ours.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - as pyspark's own modules do it
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001 - the same


def check_callbacks(session: SparkSession) -> None:
    """Ensure that Spark can call functions of this process.

    py4j waits for Spark's calls with ``select``, which refuses descriptors from 1024 on: its thread
    would end, and Spark would wait for an answer for ever.

    Raises:
        StreamError: this process has too many files open.
    """
    gateway = session.sparkContext._gateway  # noqa: SLF001 - as pyspark's own modules ask it
    if vars(gateway).get("_callback_server") is not None:
        return  # it listens already
    with Path(os.devnull).open() as file:
        next_descriptor = file.fileno()
    if next_descriptor >= _SELECTABLE:
        raise StreamError(
            f"Spark cannot call back into this process, which has more than {next_descriptor} "
            f"files open; py4j can use the first {_SELECTABLE} only: start such sinks first, or in "
            "a separate process"
        )


def _launch_environ(java: Java) -> dict[str, str]:
    """Return the environment that Spark's launcher and the Python workers read."""
    return {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # another release would not fit pyspark
        "SPARK_LOCAL_IP": _LOOPBACK,
        **python_environ(),  # else the workers use the python3 on the path
    }
