"""Two writers of one micro-batch to a Delta table: one of them commits it."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Barrier, Thread
from traceback import format_exception
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from support.harness.patience import patience

from rocketray.errors import ConfigError, StreamError
from rocketray.queries.spark.exactly_once import delta_batches, to_delta

pytestmark = pytest.mark.proves(
    "spark",
    "Of several writers of a batch to a Delta table, a new one, too, one commits",
)

ROUNDS = 5


class Frame:
    """What a writer uses of a frame of Spark."""

    def __init__(self, first: int, barrier: Barrier | None = None) -> None:
        self._rows = pa.table({"number": [*range(first, first + 10)], "word": ["a", "b"] * 5})
        self._barrier = barrier

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's
        """Return the rows, when all writers have looked whether they are there."""
        if self._barrier is not None:
            self._barrier.wait(patience(20))
        return self._rows


def write(frame: Frame, batch_id: int, table: Path, **options: Any) -> bool:
    return to_delta(frame, batch_id, table, txn_app_id="app", **options)  # type: ignore[arg-type]


def numbers(table: Path) -> list[int]:
    found: list[int] = DeltaTable(table).to_pyarrow_table()["number"].to_pylist()
    return sorted(found)


def write_at_once(table: Path, batch_id: int) -> list[bool | BaseException]:
    barrier, results = Barrier(3), list[bool | BaseException]()

    def run() -> None:
        try:
            results.append(write(Frame(10 * batch_id, barrier), batch_id, table))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            results.append(error)

    threads = [Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_what_to_install_is_the_first_error_that_spark_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"pip install 'rocketray\[delta\]'") as raised:
        write(Frame(0), 0, tmp_path)
    assert "".join(format_exception(raised.value)).count("Traceback") == 1


@pytest.mark.parametrize("number", range(ROUNDS))
def test_of_writers_at_one_time_one_writes_the_batch(tmp_path: Path, number: int) -> None:
    """A new table, too, to which all of them could append."""
    table = tmp_path / str(number)
    for batch_id in range(2):
        assert sorted(map(repr, write_at_once(table, batch_id))) == ["False", "False", "True"]
        assert numbers(table) == [*range(10 * batch_id + 10)]


def test_a_batch_that_comes_while_it_is_written_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits it after this one has looked for it the last time but one."""
    write(Frame(0), 0, tmp_path)

    def create(*_: object, **__: object) -> None:
        monkeypatch.undo()
        assert write(Frame(10), 1, tmp_path)

    monkeypatch.setattr(DeltaTable, "create", create)
    assert not write(Frame(10), 1, tmp_path)
    assert numbers(tmp_path) == [*range(20)]


def test_a_table_that_others_change_all_the_time_is_an_error_and_has_no_part_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Frame(0), 0, tmp_path)
    versions = iter(range(100))

    class Changed(DeltaTable):
        """Another batch of the app comes whenever the table has been opened, with a lower number."""

        def transaction_version(self, app_id: str) -> int | None:
            found = super().transaction_version(app_id)
            older = CommitProperties(app_transactions=[Transaction(app_id, next(versions))])
            rows = pa.table({"number": [0], "word": ["a"]})
            write_deltalake(tmp_path, rows, mode="append", commit_properties=older)
            return found

    monkeypatch.setattr("deltalake.DeltaTable", Changed)
    with pytest.raises(
        StreamError, match=rf"changed it {delta_batches._TRIES} times while batch 77"
    ):
        write(Frame(50), 77, tmp_path)
    assert not {*range(50, 60)} & {*numbers(tmp_path)}


def test_a_new_table_has_partitions_and_an_empty_batch_makes_none(tmp_path: Path) -> None:
    empty = Frame(0)
    empty._rows = empty._rows.slice(0, 0)
    assert not write(empty, 0, tmp_path / "none")
    assert not DeltaTable.is_deltatable(str(tmp_path / "none"))
    assert write(Frame(0), 0, tmp_path / "table", partition_by=["word"])
    assert DeltaTable(tmp_path / "table").metadata().partition_columns == ["word"]
