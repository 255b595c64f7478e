"""What a sink's files hold that finished micro-batches wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketray.errors import ConfigError, StoreError
from rocketray.queries.spark.file_sink_log import committed_files


def entry(path: Path, action: str = "add") -> str:
    return json.dumps({"path": path.as_uri(), "size": 3, "action": action})


def write_log(lake: Path, name: str, *lines: str, version: str = "v1") -> None:
    log = lake / "_spark_metadata" / name
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("\n".join([version, *lines]))


@pytest.mark.proves("spark", "`committed_files` returns the files of finished batches")
def test_only_what_batches_committed_counts_in_their_order(tmp_path: Path) -> None:
    one, two, orphan = tmp_path / "b 1.parquet", tmp_path / "a.parquet", tmp_path / "c.parquet"
    orphan.touch()
    write_log(tmp_path, "0", entry(one))
    write_log(tmp_path, "1", entry(two))
    write_log(tmp_path, ".2.crc", "not ours")

    assert committed_files(tmp_path) == [one, two]


def test_a_summary_replaces_what_came_before_it(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.parquet" for number in range(4)]
    write_log(tmp_path, "8", entry(files[3]))
    write_log(tmp_path, "9.compact", entry(files[0]), entry(files[1]))
    write_log(tmp_path, "10", entry(files[2]), entry(files[0], "delete"))

    assert committed_files(tmp_path) == [files[1], files[2]]


def test_a_sink_that_has_committed_nothing_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()

    assert committed_files(tmp_path) == []


def test_a_directory_without_a_log_is_no_sink(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no streaming query has written there"):
        committed_files(tmp_path)


def test_a_missing_batch_is_not_passed_over(tmp_path: Path) -> None:
    write_log(tmp_path, "0", entry(tmp_path / "a"))
    write_log(tmp_path, "2", entry(tmp_path / "b"))

    with pytest.raises(StoreError, match="a batch after -1 is missing"):
        committed_files(tmp_path)


@pytest.mark.parametrize(
    ("line", "version", "message"),
    [
        ("{}", "v1", "invalid entry"),
        ("half a li", "v1", "invalid entry"),
        ("{}", "v2", "only v1"),
        ('{"path": "hdfs://x/y", "action": "add"}', "v1", "only files of this machine"),
    ],
)
def test_a_log_that_we_cannot_read_is_an_error(
    tmp_path: Path, line: str, version: str, message: str
) -> None:
    write_log(tmp_path, "0", line, version=version)

    with pytest.raises(StoreError, match=message):
        committed_files(tmp_path)
