"""Storage of tables: in memory, or on disk by Faust's RocksDB store.

Parts of a table are gained and lost queue by queue, so a store has to be able to drop one part
alone. Faust's other store, Aerospike, cannot.
"""

from __future__ import annotations

import gc
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rocketray.errors import ConfigError

__all__ = ["check_store", "drop_database"]

_DRIVERS = ("rocksdict", "rocksdb")


def check_store(asked_by: str, url: object) -> None:
    """Raise :class:`ConfigError` when *url* cannot store tables; *asked_by* names the caller."""
    scheme = str(url or "memory:").partition(":")[0]
    if scheme == "memory":
        return
    if scheme == "aerospike":
        raise ConfigError(
            f"{asked_by}: store {str(url)!r} is not supported: all instances' tables would be in "
            "one set of a server, which cannot release the part of one queue; use rocksdb:// for "
            "tables on disk, or memory://"
        )
    if scheme != "rocksdb":
        raise ConfigError(f"{asked_by}: store {str(url)!r} is neither memory:// nor rocksdb://")
    if not any(map(find_spec, _DRIVERS)):
        raise ConfigError(
            f"{asked_by}: store {str(url)!r} needs a driver: pip install 'rocketray[rocksdb]'"
        )


def drop_database(store: Any, queue_id: int) -> None:
    """Delete the database of one queue in *store*, of Faust's RocksDB tables."""
    store._dbs.pop(queue_id, None)  # noqa: SLF001  # contract-tested
    store._key_index.clear()  # noqa: SLF001  # the same
    gc.collect()  # the driver closes a database, and so unlocks it, when the last reference is gone
    shutil.rmtree(Path(store.partition_path(queue_id)), ignore_errors=True)
