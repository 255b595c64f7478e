"""Delta tables, exactly once, with the package deltalake: no jar of Delta's is needed.

A commit of a Delta table may have a transaction: an app's id and a version, which the table's log
keeps as the last one of the app. Here they are the query's id and the number of its batch. The rows
go through the driver, as Arrow, so a batch has to fit in its memory: ``max_rows`` limits it.

Invariants
  1. A batch is committed against the version of the table in which its transaction was looked up.
     Delta refuses the commit if another one with that app's id came meanwhile: so one of two
     writers of a batch commits, and the other one looks again.
  2. Only a table that exists has such a version: a new one is created without rows first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame

from rocketray.errors import ConfigError, StreamError

from .ledger_key import app_of

# Each attempt that fails means that another writer's commit succeeded. With the data still in
# memory, another attempt costs less than Spark's repetition of the batch.
_TRIES = 5


def to_delta(
    frame: DataFrame,
    batch_id: int,
    table: Path | str,
    *,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    txn_app_id: str | None = None,
) -> bool:
    """Add a micro-batch to a Delta table, unless it is there; create the table if necessary.

    *table* is a directory or a URI, with *storage_options* as deltalake takes them. An empty batch
    adds nothing. Durable on return as far as the storage is: deltalake syncs no files of this
    machine, so after a power failure a local table may lack its last commits.

    Returns:
        whether it has written the batch.

    Raises:
        ConfigError: the package deltalake is not installed.
        StreamError: others changed the table each time when the batch was to be committed.
    """
    try:
        from deltalake import (  # noqa: PLC0415 - optional
            CommitProperties,
            DeltaTable,
            Transaction,
            write_deltalake,
        )
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"to_delta needs the package deltalake ({error}); install it: pip install "
            "'rocketray[delta]'"
        ) from None  # what Spark is told begins with the first error of a chain
    app = app_of(frame, batch_id, txn_app_id)
    place, columns = str(table), list(partition_by) or None
    options = None if storage_options is None else dict(storage_options)

    def opened() -> DeltaTable:
        return DeltaTable(place, storage_options=options)

    def has_batch(target: DeltaTable) -> bool:
        last = target.transaction_version(app)
        # A later number counts, too: Spark repeats only the last batch, so this one was written.
        return last is not None and last >= batch_id

    if DeltaTable.is_deltatable(place, options) and has_batch(opened()):
        return False
    rows = frame.toArrow()
    if not rows.num_rows:
        return False
    with suppress(CommitFailedError):  # another writer has created it
        DeltaTable.create(
            place, rows.schema, mode="ignore", partition_by=columns, storage_options=options
        )
    commit = CommitProperties(app_transactions=[Transaction(app, batch_id)])
    for _ in range(_TRIES):
        target = opened()
        if has_batch(target):
            return False
        with suppress(CommitFailedError):
            # The next round opens the table as it is then, and looks again for the batch.
            write_deltalake(
                target, rows, mode="append", partition_by=columns, commit_properties=commit
            )
            return True
    raise StreamError(
        f"Delta table {place}: other writers changed it {_TRIES} times while batch {batch_id} of "
        f"{app} was to be committed, so nothing of it was; let Spark repeat the batch"
    )
