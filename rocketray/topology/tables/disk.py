"""Storage of tables: in memory, or on disk by Faust's RocksDB store.

Parts of a table are gained and lost queue by queue, so a store has to be able to drop one part
alone. Faust's other store, Aerospike, cannot.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from faust.stores.memory import Store

from rocketray.errors import ConfigError

_DRIVERS = ("rocksdict", "rocksdb")  # Faust's store works with either


class QueueMemory(Store):  # type: ignore[misc]  # Faust's types are not followed
    """A dictionary whose keys can be dropped by queue: each records the queue that it came with.

    Faust's own store does not record the queue of keys that were set here. So the keys of a revoked
    queue stay in it, and are taken as current when the queue is assigned again.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue_of: dict[Any, int] = {}

    def forget_queue(self, queue_id: int) -> None:
        """Drop every key of that queue."""
        for key in [key for key, queue in self.queue_of.items() if queue == queue_id]:
            del self.queue_of[key]
            self.data.pop(key, None)

    def apply_changelog_batch(
        self, batch: Iterable[Any], to_key: Callable[[Any], Any], to_value: Callable[[Any], Any]
    ) -> None:
        """Apply changes, in order."""
        for event in batch:
            key = to_key(event.key)
            if event.message.value is None:
                self.data.pop(key, None)
                self.queue_of.pop(key, None)
            else:
                self.data[key] = to_value(event.value)
                self.queue_of[key] = event.message.partition

    async def on_recovery_completed(self, active_tps: Any, standby_tps: Any) -> None:
        """Do nothing: another instance's keys were dropped with their queue."""

    def _clear(self) -> None:
        super()._clear()
        self.queue_of.clear()


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
    # A part that never had a change has no directory.
    shutil.rmtree(Path(store.partition_path(queue_id)), ignore_errors=True)
