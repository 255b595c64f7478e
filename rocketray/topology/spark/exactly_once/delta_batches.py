"""Delta tables, exactly once, with the package deltalake: no jar of Delta's is needed.

A commit of a Delta table may have a transaction: an app's id and a version, which the table's log
keeps as the last one of the app. Here they are the query's id and the number of its batch. The rows
go through the driver, as Arrow, so a batch has to fit in its memory: ``max_rows`` limits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from rocketray.errors import ConfigError

from .ledger_key import app_of

__all__ = ["to_delta"]


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
    """
    try:
        from deltalake import (  # noqa: PLC0415 - optional
            CommitProperties,
            DeltaTable,
            Transaction,
            write_deltalake,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"to_delta needs the package deltalake ({error}); install it: pip install "
            "'rocketray[delta]'"
        ) from error
    app = app_of(frame, batch_id, txn_app_id)
    place = str(table)
    options = None if storage_options is None else dict(storage_options)
    if DeltaTable.is_deltatable(place, options):
        last = DeltaTable(place, storage_options=options).transaction_version(app)
        if last is not None and last >= batch_id:
            return False
    rows = frame.toArrow()
    if not rows.num_rows:
        return False
    write_deltalake(
        place,
        rows,
        mode="append",
        partition_by=list(partition_by) or None,
        storage_options=options,
        commit_properties=CommitProperties(app_transactions=[Transaction(app, batch_id)]),
    )
    return True
