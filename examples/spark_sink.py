"""A Spark sink: the payments of a topic as Parquet files, filtered before Spark reads them.

``python examples/spark_sink.py`` sends three messages to the node on ./rocketray-data (start it
with ``rocketray start``), writes what is there to lake/payments, and ends. Run again, it writes
only what is new: the checkpoint in checkpoints/payments holds the offsets. ``app.main()`` would run
the sink until it is stopped.
"""

from __future__ import annotations

import json

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming.readwriter import DataStreamWriter

import rocketray as rr

app = rr.App("lake")
trade = app.topic("LakeTrade", queues=2)


@app.sink(
    trade,
    tags="pay",
    checkpoint="checkpoints/payments",
    schema="body binary, storeTimestamp timestamp",
)
def payments(frame: DataFrame) -> DataStreamWriter:
    """Unpack the JSON bodies, and append them to Parquet files."""
    order = from_json(col("body").cast("string"), "order_id string, amount double")
    rows = frame.select(order.alias("order"), "storeTimestamp").select("order.*", "storeTimestamp")
    return rows.writeStream.format("parquet").option("path", "lake/payments")


def send_trade() -> None:
    """Send three messages, two of them payments."""
    with rr.Client() as client:
        client.topics.create("LakeTrade", queues=2)
    with rr.Producer() as producer:
        for tag, order_id, amount in (("pay", "o-1", 120), ("order", "o-2", 9), ("pay", "o-3", 7)):
            body = json.dumps({"order_id": order_id, "amount": amount}).encode()
            producer.send("LakeTrade", body, tags=tag, keys=[order_id])


if __name__ == "__main__":
    send_trade()
    with rr.SinkHost(app) as host:
        host.process_available(timeout_s=500)
    for file in rr.spark.committed_files("lake/payments"):
        for row in pq.read_table(file).to_pylist():
            print(f"{row['order_id']}: {row['amount']}")
