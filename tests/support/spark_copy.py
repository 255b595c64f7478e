"""A program that copies a topic into another one with Spark, and ends when it has all of it.

python -m support.spark_copy DATA CHECKPOINT GUARANTEE ROWS_A_BATCH
"""

from __future__ import annotations

import sys
from pathlib import Path

from rocketray.topology.spark.session import spark_session


def main(data: str, checkpoint: str, guarantee: str, rows: str) -> None:
    """Copy what there is, from the checkpoint on."""
    work = Path(checkpoint).parent / "spark"
    session = spark_session("copy", work_directory=work, short_lived=True)
    options = {"topic": "In", "data": data, "maxOffsetsPerTrigger": rows}
    frame = session.readStream.format("rocketray").schema("body binary").options(
        startingOffsets="earliest", **options
    ).load()  # fmt: skip
    # More tasks than cores, so some have ended while others are to begin.
    writer = frame.repartition(4).writeStream.format("rocketray").trigger(availableNow=True)
    given = {"topic": "Out", "data": data, "guarantee": guarantee, "checkpointLocation": checkpoint}
    writer.options(**given).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
