"""A program for tests: runs a Parquet sink until it is killed, and says how far it is.

    python -m support.programs.endless_sink DATA DIRECTORY

Prints the Java version, then a line with the number of each finished micro-batch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rocketray.queries.spark.session import spark_session
from rocketray.queries.spark.sink import SinkHost
from rocketray.topology.app.sink_spec import SinkSpec


def lake_sink(directory: Path) -> SinkSpec:
    """The sink of the program; another process can go on from its checkpoint."""

    def lake(frame: Any) -> Any:
        return frame.writeStream.format("parquet").option("path", str(directory / "lake"))

    return SinkSpec(
        "lake",
        lake,
        "Trade",
        checkpoint=str(directory / "checkpoint"),
        trigger="1 millisecond",
        schema="queueId int, queueOffset bigint, body binary",
        max_rows=250,
    )


def main(data: Path, directory: Path) -> None:
    session = spark_session("endless", work_directory=directory, short_lived=True)
    (row,) = session.sql(
        "SELECT java_method('java.lang.System', 'getProperty', 'java.version')"
    ).collect()
    print(row[0], flush=True)  # noqa: T201
    host = SinkHost([lake_sink(directory)], data=data, checkpoints=directory, session=session)
    host.start()
    seen = None
    while True:
        (statistics,) = host.statistics()
        if statistics.batch_id != seen:
            seen = statistics.batch_id
            print(seen, flush=True)  # noqa: T201
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
