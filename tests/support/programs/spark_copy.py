"""A program that copies a topic with Spark until it is killed: once with ledgers, and without them.

python -m support.programs.spark_copy DATA DIRECTORY MASTER

Its checkpoints and tables are in DIRECTORY.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from support.nodes.fleet import TOPIC

from rocketray.queries.spark import exactly_once
from rocketray.queries.spark.session import spark_session

SOURCE, LOOSE = "In", "Loose"
TABLE, LOOSE_TABLE = "table", "loose_table"
COPIES = {TOPIC: SOURCE, TABLE: TOPIC, LOOSE: TOPIC, LOOSE_TABLE: TOPIC}
"""The topic that each topic or table is a copy of; its query has that topic's name, too."""


def main(data: str, directory: str, master: str) -> None:
    """Copy what there is, and what comes."""
    root = Path(directory)
    session = spark_session(
        "copy", work_directory=root, short_lived=True, settings={"spark.master": master}
    )

    def read(topic: str) -> DataFrame:
        reader = session.readStream.format("rocketray").schema("body binary")
        return reader.options(topic=topic, data=data, startingOffsets="earliest").load()

    def write(rows: DataFrame, batch_id: int) -> None:
        bodies = rows.selectExpr("CAST(body AS string) AS body")
        exactly_once.to_parquet(bodies, batch_id, root / "tables" / TABLE)
        loose = rows.write.format("rocketray").mode("append")
        loose.options(topic=LOOSE, data=data, guarantee="at_least_once").save()
        bodies.write.mode("append").parquet(str(root / "tables" / LOOSE_TABLE))

    # More tasks than cores, so some have ended while others are to begin.
    copied = read(SOURCE).repartition(3).writeStream.format("rocketray")
    written = read(TOPIC).writeStream.foreachBatch(write)
    for name, writer in ((SOURCE, copied.options(topic=TOPIC, data=data)), (TOPIC, written)):
        writer.option("checkpointLocation", str(root / "checkpoints" / name)).start()
    session.streams.awaitAnyTermination()
    sys.exit("a query ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
