"""The demo's app: three agents and a Spark sink over one topic, each with a filter of its own.

Agents run in Ray actors that import this module by its path, ``rocketray_demo.app:app``. Their
counts go into files in the node's data directory, where the driver reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rocketray.topology.app.app import App
from rocketray.topology.app.stream import Stream

from .data import QUEUES, TOPIC
from .predicates import is_red_eye
from .tally import load_tally, save_tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LATE_FROM_JFK = "dep_delay > 60 AND origin = 'JFK'"
PARQUET = "late-from-jfk.parquet"
FLIGHT_COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, air_time int, distance int, hour int, minute int, time_hour string"
)
_COLUMNS = ("queueId", "queueOffset", "body")

app = App("demo")
flights = app.topic(TOPIC, queues=QUEUES)


def tally_path(data: Path, agent: str) -> Path:
    """Return the path of an agent's counts."""
    return data / "agents" / f"{agent}.json"


@app.agent(flights, tags="UA || DL")
async def destinations(stream: Stream[Any]) -> None:
    """Count the flights of two carriers, with their mean delay at arrival, by destination."""
    path = tally_path((await app.connect()).data, "destinations")
    tally = load_tally(path)
    async for batch in stream.batches(_COLUMNS):
        for body in tally.fresh_bodies(batch):
            flight = orjson.loads(body)
            tally.add_delay(flight["dest"], flight["arr_delay"])
        save_tally(tally, path)


@app.agent(flights, sql=LATE_FROM_JFK)
async def late_from_jfk(stream: Stream[Any]) -> None:
    """Count late departures, event by event as in any Faust app."""
    path = tally_path((await app.connect()).data, "late_from_jfk")
    tally = load_tally(path)
    async for events in stream.take_events(1000, within=0.2):
        for event in events:
            tally.take(event.message.partition, event.message.offset)
        save_tally(tally, path)


@app.agent(flights, where=is_red_eye)
async def red_eyes(stream: Stream[Any]) -> None:
    """Count the messages that a Python predicate accepts."""
    path = tally_path((await app.connect()).data, "red_eyes")
    tally = load_tally(path)
    async for batch in stream.batches(_COLUMNS):
        # It counts what it yields; the bodies are not needed.
        for _ in tally.fresh_bodies(batch):
            pass
        save_tally(tally, path)


@app.sink(flights, sql=LATE_FROM_JFK, schema="body binary")
def late_lake(frame: DataFrame) -> DataStreamWriter:
    """Write late departures to Parquet files, a column for each field, each row exactly once."""
    row = f"from_json(CAST(body AS STRING), '{FLIGHT_COLUMNS}') AS row"
    flights = frame.selectExpr(row).select("row.*")
    assert isinstance(app.place, Path)  # the driver set it
    return flights.writeStream.format("parquet").option("path", str(app.place / PARQUET))
