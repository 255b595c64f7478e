"""The key of a micro-batch in a ledger: the query, and the batch's number."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

from rocketray.errors import ConfigError

_QUERY_ID = "sql.streaming.queryId"  # of Spark's local properties, which its executors get, too
_APP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,119}\Z")  # also a part of a directory's name


def app_of(frame: DataFrame, batch_id: int, txn_app_id: str | None) -> str:
    """Return *txn_app_id*, or else the id of the query that *frame* is a micro-batch of.

    Raises:
        ConfigError: it cannot be a key, or *frame* is of no streaming query, or *batch_id* is none.
    """
    if not isinstance(batch_id, int) or batch_id < 0:
        raise ConfigError(
            f"batch_id={batch_id!r} is not the number of a micro-batch; pass the second argument "
            "of the sink's function"
        )
    found = txn_app_id or frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if found is None:
        raise ConfigError(
            "this frame is of no streaming query; call the writer in the function of a sink or of "
            "foreachBatch, or name the writer: txn_app_id='…'"
        )
    if not _APP_ID.match(found):
        raise ConfigError(
            f"txn_app_id={found!r:.140} has 1 to 120 letters, digits and . _ -, and begins with a "
            "letter or digit"
        )
    return found
