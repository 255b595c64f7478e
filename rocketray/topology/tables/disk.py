"""Tables on disk: Faust's RocksDB store, whose parts can be thrown away one by one."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

__all__ = ["drop_database"]


def drop_database(store: Any, queue_id: int) -> None:
    """Delete what *store*, of Faust's RocksDB tables, keeps of a queue."""
    store._dbs.pop(queue_id, None)  # noqa: SLF001  # contract-tested
    store._key_index.clear()  # noqa: SLF001  # the same
    gc.collect()  # the driver closes a database, and so unlocks it, when nobody refers to it
    shutil.rmtree(Path(store.partition_path(queue_id)), ignore_errors=True)
