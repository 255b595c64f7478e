"""Batches of Parquet files whose writer dies, or is not alone; Spark's part is Arrow's here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketray.errors import ConfigError
from rocketray.queries.spark.exactly_once import parquet_batches
from rocketray.queries.spark.exactly_once.parquet_batches import to_parquet

QUERY = "cd655117-49ff-4b2b-ae57-24656d621f89"


class Frame:
    """A micro-batch with some numbers, and its writer; *dies* is called with two files written."""

    def __init__(self, *numbers: int, query: str | None = QUERY, dies: Any = None) -> None:
        self.columns = ["number"]
        self.write = self
        self.sparkSession = SimpleNamespace(
            sparkContext=SimpleNamespace(getLocalProperty=lambda _name: query)
        )
        self._numbers, self._dies = numbers, dies

    def partitionBy(self, *columns: str) -> Self:  # noqa: N802 - Spark's name
        assert columns == ()
        return self

    def parquet(self, uri: str) -> None:
        directory = Path(uri.removeprefix("file:"))
        directory.mkdir()
        for part in range(2):
            table = pa.table({"number": pa.array(self._numbers[part::2], pa.int64())})
            pq.write_table(table, directory / f"part-{part}.parquet")
        if self._dies is not None:
            self._dies(directory)


def write(frame: Frame, batch_id: int, path: Path | str, **options: Any) -> bool:
    given: Any = frame
    return to_parquet(given, batch_id, path, **options)


def stored(path: Path) -> list[int]:
    return sorted(pq.read_table(path)["number"].to_pylist())


def test_a_batch_is_a_directory_that_readers_see_as_a_whole(tmp_path: Path) -> None:
    lake = tmp_path / "with a space" / "lake"
    assert write(Frame(1, 2, 3), 0, lake)
    assert write(Frame(4), 12, str(lake))
    assert not write(Frame(1, 2, 3), 0, lake)
    assert stored(lake) == [1, 2, 3, 4]
    names = [f"batch={QUERY}-0000000000", f"batch={QUERY}-0000000012"]
    assert sorted(each.name for each in lake.iterdir()) == names
    assert set(pq.read_table(lake)["batch"].to_pylist()) == {name[6:] for name in names}


def test_an_empty_batch_adds_nothing(tmp_path: Path) -> None:
    assert not write(Frame(), 0, tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_other_queries_and_named_writers_have_ledgers_of_their_own(tmp_path: Path) -> None:
    assert write(Frame(1), 0, tmp_path)
    assert write(Frame(2, query="another"), 0, tmp_path)
    assert write(Frame(3, query=None), 0, tmp_path, txn_app_id="mine")
    assert not write(Frame(3), 0, tmp_path, txn_app_id="mine")
    assert stored(tmp_path) == [1, 2, 3]


@pytest.mark.proves(
    "spark",
    "A writer of Parquet files that dies leaves nothing that readers see; of two, one commits; "
    "all is synced first",
)
@pytest.mark.parametrize("step", ["parquet", "_has_rows", "_commit", "sync_directory"])
def test_a_writer_that_dies_at_any_step_leaves_nothing_that_readers_see(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(Frame(1), 0, tmp_path)

    def die(*_: object) -> Any:
        raise KeyboardInterrupt

    if step != "parquet":
        monkeypatch.setattr(parquet_batches, step, die)
    with pytest.raises(KeyboardInterrupt):
        write(Frame(2, 3, dies=die if step == "parquet" else None), 1, tmp_path)
    assert stored(tmp_path) == [1]
    monkeypatch.undo()
    assert write(Frame(2, 3), 1, tmp_path)
    assert stored(tmp_path) == [1, 2, 3]
    assert len([*tmp_path.iterdir()]) == 2, "its rest is removed with the commit"


@pytest.mark.proves(
    "spark",
    "A writer of Parquet files that dies leaves nothing that readers see; of two, one commits; "
    "all is synced first",
)
def test_of_two_writers_of_a_batch_one_commits(tmp_path: Path) -> None:
    def other(directory: Path) -> None:
        assert directory.exists()
        assert write(Frame(1, 2), 0, tmp_path)
        assert not directory.exists(), "its rest is removed"

    assert not write(Frame(1, 2, dies=other), 0, tmp_path)
    assert stored(tmp_path) == [1, 2]


def test_the_name_that_exists_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_batches, "_remove_rests", lambda *_: None)

    def other(_directory: Path) -> None:
        assert write(Frame(7), 0, tmp_path)

    assert not write(Frame(8, dies=other), 0, tmp_path)
    assert stored(tmp_path) == [7]


@pytest.mark.proves(
    "spark",
    "A writer of Parquet files that dies leaves nothing that readers see; of two, one commits; "
    "all is synced first",
)
def test_all_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(path: Path) -> None:
        has_name = any(each.name.startswith("batch=") for each in tmp_path.iterdir())
        synced.append(f"{path.name[:6]} {'behind' if has_name else 'before'}")

    monkeypatch.setattr(parquet_batches, "_sync_file", note)
    monkeypatch.setattr(parquet_batches, "sync_directory", note)
    assert write(Frame(1, 2), 0, tmp_path)
    parent = f"{tmp_path.parent.name[:6]} before"
    assert sorted(synced[1:3]) == ["part-0 before", "part-1 before"]
    assert [synced[0], *synced[3:]] == [parent, "_writi before", f"{tmp_path.name[:6]} behind"]


def test_a_place_without_renames_and_a_column_of_the_ledgers_name_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="an object store has none; use to_delta"):
        write(Frame(1), 0, "s3://bucket/lake")
    frame = Frame(1)
    frame.columns = ["number", "Batch"]
    with pytest.raises(ConfigError, match="a column 'batch', which names the directories"):
        write(frame, 0, tmp_path)
