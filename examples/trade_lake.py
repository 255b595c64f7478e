"""A lake of trade: payments of each region, large orders, and how many orders were paid.

``python examples/trade_lake.py`` sends trade (trade_data.py) to the node on ./rocketray-data, which
has to run, writes what is there to lake/trade, prints a report, and ends. The filters run before
Spark gets the messages: tags for one sink, SQL92 over properties for the other.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.readwriter import DataStreamWriter
from trade_data import COLUMNS, make_trade

import rocketray as rr

app = rr.App("trade-lake")
trade = app.topic("TradeLake", queues=2)
once = rr.spark.exactly_once


@app.sink(trade, tags="pay", checkpoint="checkpoints/trade-pays", schema="body binary")
def pays(frame: DataFrame, batch_id: int) -> None:
    """Write each payment once, in a directory for each region."""
    once.to_parquet(rows_of(frame), batch_id, "lake/trade/pays", partition_by=["region"])


@app.sink(
    trade,
    sql="TAGS = 'order' AND amount >= 900",
    checkpoint="checkpoints/trade-large",
    schema="body binary",
)
def large_orders(frame: DataFrame) -> DataStreamWriter:
    """Write the orders that someone has to look at."""
    return rows_of(frame).writeStream.format("parquet").option("path", "lake/trade/large")


def rows_of(frame: DataFrame) -> DataFrame:
    """Return the columns of the messages."""
    return frame.select(from_json(col("body").cast("string"), COLUMNS).alias("one")).select("one.*")


def report(spark: SparkSession) -> None:
    """Print what share of each region's orders is paid, from the topic and the lake."""
    source = spark.read.format("rocketray").options(topic="TradeLake", tags="order")
    orders = rows_of(source.schema("body binary").load())
    paid = spark.read.parquet("lake/trade/pays").selectExpr("order_id", "amount AS paid")
    joined = orders.join(paid, "order_id", "left").groupBy("region")
    totals = joined.agg(count("*"), count("paid"), total("paid"))
    for region, ordered, paid_orders, amount in totals.orderBy("region").collect():
        print(f"{region}: {paid_orders} of {ordered} orders are paid, {amount} in all")


if __name__ == "__main__":
    with rr.Client() as client, client.producer() as producer:
        client.topics.create("TradeLake", queues=2)
        for kind, value in make_trade(500, seed=7):
            amount = {"amount": str(value["amount"])}
            producer.send("TradeLake", json.dumps(value).encode(), tags=kind, properties=amount)
    spark = rr.spark.spark_session("trade-lake")
    with rr.SinkHost(app, session=spark) as host:
        host.process_available(timeout_s=500)
    report(spark)
    spark.stop()
