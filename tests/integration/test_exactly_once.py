"""The writers of micro-batches into Parquet, a database and Delta, where batches are repeated."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import rocketray as rr
from rocketray.errors import ConfigError, StreamError
from rocketray.queries.spark.exactly_once import jdbc_batches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

once = rr.spark.exactly_once


@pytest.mark.proves(
    "spark",
    "The writers of `exactly_once` write a repeated batch once: Parquet, Derby, Delta",
)
def test_a_batch_that_is_repeated_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """Spark repeats the first batch, which all writers wrote before its function failed."""
    files, table, url = (
        tmp_path / "files",
        tmp_path / "delta",
        f"jdbc:derby:{tmp_path}/db;create=true",
    )
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
    written: list[tuple[int, list[bool]]] = []

    def lake(frame: DataFrame, batch_id: int) -> None:
        frame = frame.selectExpr("value", "value % 2 AS parity", "'a' || value AS word")
        results = [
            once.to_parquet(frame, batch_id, files, partition_by=["parity"]),
            once.to_jdbc(frame, batch_id, url, "app.numbers"),
            once.to_delta(frame, batch_id, table),
        ]
        written.append((batch_id, results))
        if len(written) == 1:
            raise RuntimeError("the process is gone")

    def run() -> None:
        writer = source.load().writeStream.foreachBatch(lake).trigger(once=True)
        writer.option("checkpointLocation", str(tmp_path / "kept")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the process is gone"):
        run()
    run()
    run()

    assert written == [(0, [True] * 3), (0, [False] * 3), (1, [True] * 3)]
    for rows in (
        pq.read_table(files),
        spark.read.parquet(str(files)).toArrow(),
        DeltaTable(table).to_pyarrow_table(),
        spark.read.jdbc(url, "app.numbers").toArrow(),
    ):
        assert sorted(rows["value"].to_pylist()) == [*range(200)]
        assert set(rows["word"].to_pylist()) == {f"a{number}" for number in range(200)}
    assert len([*files.glob("batch=*-000000000[01]")]) == len([*files.iterdir()]) == 2


@pytest.mark.proves(
    "spark",
    "A transaction of `to_jdbc` that fails leaves neither rows nor an entry",
)
def test_a_transaction_that_fails_leaves_neither_rows_nor_an_entry(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    rows = spark.createDataFrame([(1, "one"), (2, "two")], "number int, word string").coalesce(1)
    with jdbc_batches._opened(rows, url, {}) as database:
        database.run("CREATE TABLE words (number INT PRIMARY KEY, word VARCHAR(9))")

    def write(frame: DataFrame, batch_id: int) -> bool:
        return once.to_jdbc(frame, batch_id, url, "words", txn_app_id="words")

    assert write(rows, 0)
    assert not write(rows, 0)
    with pytest.raises(StreamError, match=r"^the database refused: .*duplicate key") as refused:
        write(rows.selectExpr("number + 1 as number", "word"), 1)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="words has no column colour; it has NUMBER, WORD: sel"):
        write(rows.selectExpr("1 as colour"), 1)
    [entry] = spark.read.jdbc(url, "rocketray_batches").collect()
    assert tuple(entry) == ("words", "words", 0)
    assert write(rows.selectExpr("number + 2 as NUMBER", "word"), 1)
    found = [(row.NUMBER, row.WORD) for row in spark.read.jdbc(url, "words").collect()]
    assert sorted(found) == [(1, "one"), (2, "two"), (3, "one"), (4, "two")]
    with jdbc_batches._opened(rows, url, {}) as database:
        assert database.tables("rocketray_") == ["ROCKETRAY_BATCHES"], "the failed ones are gone"


def test_a_writer_needs_a_key_and_the_name_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1,)], "number int")
    with pytest.raises(ConfigError, match="this frame is of no streaming query; call the writer"):
        once.to_parquet(rows, 0, tmp_path)
    with pytest.raises(ConfigError, match="batch_id=-1 is not the number of a micro-batch"):
        once.to_delta(rows, -1, tmp_path, txn_app_id="numbers")
    with pytest.raises(ConfigError, match="txn_app_id='a/b' has 1 to 120 letters"):
        once.to_delta(rows, 0, tmp_path, txn_app_id="a/b")
    with pytest.raises(ConfigError, match="is not the name of a table"):
        once.to_jdbc(rows, 0, "jdbc:derby:memory:x", "words; drop table words", txn_app_id="a")
