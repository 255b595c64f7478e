"""Spark's classes as the JVM keeps them in memory, in a file: a JVM that maps it starts in half the
processor time.

    python -m support.spark_classes FILE

starts Spark once, lets it read, write and stream, and writes the classes that it loaded. ``make``
does it once, and conftest.py gives the file to all JVMs of the tests. A JVM of another version, or
with other jars, does without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from support.jvm import QUICK_JAVA

from rocketray.topology.spark.session import spark_session


def main(file: Path) -> None:
    """Start Spark, use it as the tests do, and write the classes that it loaded to the *file*."""
    new = file.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory() as work:
        session = spark_session("classes", work_directory=Path(work), short_lived=True)
        _use(session, Path(work))
        java = session.sparkContext._gateway.proc  # it writes them when it ends
        session.stop()
        java.communicate()
    new.replace(file)


def _use(session: SparkSession, work: Path) -> None:
    frame = session.createDataFrame([(1, "one"), (2, "two")], "number int, word string")
    frame.groupBy("word").count().write.parquet(str(work / "lake"))
    session.read.parquet(str(work / "lake")).filter("count > 0").collect()
    stream = session.readStream.format("rate").load().writeStream.trigger(once=True)
    stream.foreachBatch(lambda batch, _number: batch.collect()).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
