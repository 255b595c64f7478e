"""Parquet files, exactly once: a directory for each micro-batch, which appears as a whole.

    PATH/batch=<query id>-<batch number>/part-….parquet
    PATH/_writing-<query id>-<batch number>-<random>/        a batch that is being written

The name of a directory is its entry in the ledger. Readers of partitioned directories, as Spark,
Arrow, pandas and DuckDB, take ``batch`` for a column, and skip names that begin with ``_``: they
see batches that were committed, and nothing of others.

Invariants
  1. A directory ``batch=…`` has all files of its batch, and all of them were synced before it got
     its name. It never changes.
  2. The rename fails where there is such a directory, so one of two writers commits.
  3. What a writer left behind is removed only after its batch was committed: before that, another
     writer of the batch may be about to rename it.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from rocketray.base.whole_file import sync_directory
from rocketray.errors import ConfigError

from .ledger_key import app_of

_COLUMN = "batch"
_IS_THERE = (errno.ENOTEMPTY, errno.EEXIST)  # POSIX allows either for a directory with files


def to_parquet(
    frame: DataFrame,
    batch_id: int,
    path: Path | str,
    *,
    partition_by: Sequence[str] = (),
    txn_app_id: str | None = None,
) -> bool:
    """Add a micro-batch to the directory *path*, unless it is there. Durable on return.

    *path* is on this machine, or on a file system that it shares with Spark's executors; a
    directory's rename has to be atomic there. An empty batch adds nothing.

    Returns:
        whether it has written the batch.

    Raises:
        ConfigError: *path* is a URI, or *frame* has a column ``batch``.
    """
    app = app_of(frame, batch_id, txn_app_id)
    root = _checked(frame, path)
    # Ten digits, so that a listing has the batches in their order.
    key = f"{app}-{batch_id:010}"
    committed = root / f"{_COLUMN}={key}"
    if committed.exists():
        _remove_rests(root, key)
        return False
    root.mkdir(parents=True, exist_ok=True)
    # The name of a directory that was just made is durable when its parent was synced.
    sync_directory(root.parent)
    written = root / f"_writing-{key}-{uuid.uuid4().hex}"
    # ``file:``, because Spark's default file system may be another one, such as HDFS.
    frame.write.partitionBy(*partition_by).parquet(f"file:{written}")
    is_committed = _has_rows(written) and _commit(written, committed)
    if not is_committed:
        shutil.rmtree(written, ignore_errors=True)  # the writer that committed removes it, too
    _remove_rests(root, key)
    return is_committed


def _checked(frame: DataFrame, path: Path | str) -> Path:
    if "://" in str(path):
        raise ConfigError(
            f"{path}: to_parquet writes to a directory, whose rename commits a batch, and an object "
            "store has none; use to_delta, or a sink of one argument with "
            ".writeStream.format('parquet')"
        )
    if _COLUMN in map(str.lower, frame.columns):
        raise ConfigError(
            f"the frame has a column {_COLUMN!r}, which names the directories of to_parquet; rename "
            f"it: frame.withColumnRenamed({_COLUMN!r}, …)"
        )
    return Path(path).absolute()


def _has_rows(written: Path) -> bool:
    return any(pq.read_metadata(file).num_rows for file in written.rglob("*.parquet"))


def _commit(written: Path, committed: Path) -> bool:
    """Sync all of a batch, and give it its name; return whether no other writer did so first."""
    for directory, _, files in os.walk(written):
        for name in files:
            _sync_file(Path(directory, name))
        sync_directory(Path(directory))
    try:
        written.rename(committed)
    except OSError as error:
        if error.errno not in _IS_THERE:
            raise
        return False
    sync_directory(committed.parent)
    return True


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove_rests(root: Path, key: str) -> None:
    for rest in root.glob(f"_writing-{key}-*"):
        shutil.rmtree(rest, ignore_errors=True)
