"""A program for tests: a plain Spark session of a user's, over a topic.

    python -m support.programs.path_job DATA TAGS...

Prints for each of the filters how many messages of ``Trade`` match.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import rocketray


def main(data: str, *filters: str) -> None:
    assert rocketray.__version__
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    for tags in filters:
        reader = session.read.format("rocketray").options(data=data, topic="Trade", tags=tags)
        print(reader.load().count(), flush=True)  # noqa: T201
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
