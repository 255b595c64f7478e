"""A checkpoint whose first micro-batch was interrupted before it had begun.

A query writes the offsets of batch 0 to ``offsets/.0.UUID.tmp``, and renames that file to
``offsets/0``. If the query is stopped, or its process killed, between the two, the temporary file
stays. Spark refuses such a checkpoint from then on: without a batch it wants an empty directory
(``STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY``). Beside a batch it ignores such files.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

_TEMPORARY = re.compile(r"\.\d+\.[0-9a-f-]{36}\.tmp\Z")


def clear_torn_start(session: SparkSession, checkpoint: str) -> None:
    """Remove what an interrupted first micro-batch left in *checkpoint*.

    It may be of another process that is in its first one. That one then fails, as Spark wants of
    one of two queries on a checkpoint.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - as pyspark's own modules do it
    java: Any = session.sparkContext._jsc  # noqa: SLF001 - the same
    offsets = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets")
    # Hadoop's view, for checkpoints that are not on this machine.
    files = offsets.getFileSystem(java.hadoopConfiguration())
    if not files.exists(offsets):
        return
    found = [status.getPath() for status in files.listStatus(offsets)]
    if all(_TEMPORARY.match(path.getName()) for path in found):
        for path in found:
            files.delete(path, False)  # noqa: FBT003 - Java's: only a file
