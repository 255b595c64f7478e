"""A declarative pipeline: the payments of a topic as a table, and their sum for each customer.

``spark-pipelines run`` in this directory brings both up to date and ends; see spark-pipeline.yml.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as sum_of

PAYMENT = "customer string, amount double"


@dp.table
def payments() -> DataFrame:
    """Append the payments that are new since the last run; the filter runs beside the log."""
    stream = SparkSession.active().readStream.format("rocketray").schema("body binary")
    trade = stream.options(topic="Trade", tags="pay", startingOffsets="earliest").load()
    return trade.select(from_json(col("body").cast("string"), PAYMENT).alias("one")).select("one.*")


@dp.materialized_view
def paid() -> DataFrame:
    """Add up the payments of each customer."""
    rows = SparkSession.active().read.table("payments")
    return rows.groupBy("customer").agg(sum_of("amount").alias("amount"))
