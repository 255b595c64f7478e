"""A lake of flights, and the delays of each carrier by the hour, which return to a topic.

``python examples/flights_lake.py`` sends flights to the node on ./rocketray-data, which has to run,
writes them to lake/flights, with ``--delta`` to a Delta table, too, and shows delays until Ctrl-C.
"""

from __future__ import annotations

import json
import sys

from flights_data import SCHEMA, make_flights
from pyspark.sql import DataFrame
from pyspark.sql.functions import avg, col, count, date_format, from_json, struct, to_json, window
from pyspark.sql.streaming.readwriter import DataStreamWriter

import rocketray as rr

app = rr.App("flights")


class Delay(rr.Record):
    """How late the flights of a carrier were in an hour."""

    carrier: str
    hour: str
    flights: int
    minutes: float


flights = app.topic("Flights", queues=2)
delays = app.topic("HourlyDelays", value_type=Delay, queues=2)


@app.sink(flights, checkpoint="checkpoints/flights", schema="body binary")
def lake(frame: DataFrame) -> DataStreamWriter:
    """Write each flight once, in a directory for each carrier."""
    writer = rows_of(frame).writeStream.format("parquet").option("path", "lake/flights")
    return writer.partitionBy("carrier")


if "--delta" in sys.argv:

    @app.sink(flights, checkpoint="checkpoints/delta", schema="body binary", max_rows=100_000)
    def table(frame: DataFrame, batch_id: int) -> None:
        """Write each flight once; a batch has to fit into memory."""
        rr.spark.exactly_once.to_delta(rows_of(frame), batch_id, "lake/flights_delta")


@app.sink(flights, checkpoint="checkpoints/hourly", schema="body binary")
def hourly(frame: DataFrame) -> DataStreamWriter:
    """Send each hour of a carrier, once, when no more flights of it are expected."""
    flown = rows_of(frame).where("dep_delay IS NOT NULL").withWatermark("time_hour", "1 hour")
    values = count("*").alias("flights"), avg("dep_delay").alias("minutes")
    totals = flown.groupBy("carrier", window("time_hour", "1 hour")).agg(*values)
    hour = date_format("window.start", "yyyy-MM-dd HH:mm").alias("hour")
    body = to_json(struct("carrier", hour, "flights", "minutes")).alias("body")
    rows = totals.select(body, col("carrier").alias("shardingKey"))
    return rows.writeStream.format("rocketray").option("topic", "HourlyDelays")


def rows_of(frame: DataFrame) -> DataFrame:
    """Return the columns of the flights."""
    return frame.select(from_json(col("body").cast("string"), SCHEMA).alias("one")).select("one.*")


@app.agent(delays)
async def show(stream: rr.Stream[Delay]) -> None:
    """Show each hour."""
    async for one in stream:
        print(f"{one.carrier} {one.hour}: {one.flights} flights, {one.minutes:.2f} minutes late")


if __name__ == "__main__":
    with rr.Client() as client, client.producer() as producer:
        client.topics.ensure("Flights", queues=2)
        client.topics.ensure("HourlyDelays", queues=2)
        made = make_flights(3000, seed=2013)
        producer.send_many("Flights", bodies=[json.dumps(one).encode() for one in made])
    app.main()
