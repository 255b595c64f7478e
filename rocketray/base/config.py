"""The settings of a store, validated at construction. Sizes are bytes, times milliseconds."""

from __future__ import annotations

import socket
from dataclasses import dataclass, fields

from rocketray.errors import ConfigError

CONSUME_QUEUE_ENTRY_BYTES = 20  # i64 physical offset, i32 size, i64 tags code
SCRUB_RATE = 1024 * 1024
"""How many bytes a second of its stored messages a shard process reads again: 90 GB a day."""
_COMMIT_LOG_SEGMENT_MIN = 4096  # a page; tests of many files use it
_COMMIT_LOG_SEGMENT_MAX = 1 << 30  # RocketMQ's size; larger ones overflow int32 views
_FILE_BYTES_MAX = 1 << 31  # RocketMQ's positions in files are int32
_LEAST = {
    # 1 where the formats set no limit: files that small only make tests short.
    "consume_queue_segment_entries": 1,
    "index_hash_slots": 1,
    "consume_queue_ext_segment_bytes": 1024,  # a few units with bitmaps of the usual 14 bytes
    "flush_interval_ms": 1,
}


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The sizes of a store's files, and the identity that its offset ids carry.

    - The settings belong to the directory: a store is always opened with the values it was created
      with. Only ``consume_queue_ext`` may become true later. ``flush_interval_ms`` and
      ``append_properties_crc`` may differ from one opening to the next.
    - With ``consume_queue_ext`` a queue keeps, beside each entry, its store time and, where SQL92
      filters are registered, a bitmap that says which of them may match.
    - ``store_host`` is an IPv4 or IPv6 address and a port. They name the store and are never
      dialled.
    - With ``append_properties_crc`` each record that ``put`` writes ends with a CRC of the whole
      record. In batches it is decided when they are encoded; producers and nodes always add it.
    """

    # RocketMQ's file has 1 GiB for all queues of a broker; here each queue has a log of its own,
    # and retention removes whole files.
    commit_log_segment_bytes: int = 64 * 1024 * 1024
    consume_queue_segment_entries: int = (
        300_000  # 6 MB, as RocketMQ; a log of 64 MiB holds about as many
    )
    # A tenth of RocketMQ's slots and a twentieth of its entries, 22 MB a file, as an index file
    # belongs to one queue. In a full file a chain has two entries on average, RocketMQ's has four.
    index_hash_slots: int = 500_000
    index_entries: int = 1_000_000
    consume_queue_ext: bool = False
    consume_queue_ext_segment_bytes: int = 48 * 1024 * 1024  # RocketMQ's size
    store_host: tuple[str, int] = ("127.0.0.1", 10911)  # the port of a RocketMQ broker
    flush_interval_ms: int = 500  # RocketMQ's flushIntervalCommitLog
    append_properties_crc: bool = True

    def __post_init__(self) -> None:
        self._check_types()
        size = self.commit_log_segment_bytes
        if not _COMMIT_LOG_SEGMENT_MIN <= size <= _COMMIT_LOG_SEGMENT_MAX:
            raise ConfigError(
                f"commit_log_segment_bytes is {size}; it must be from {_COMMIT_LOG_SEGMENT_MIN} "
                f"to {_COMMIT_LOG_SEGMENT_MAX}"
            )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        address, port = self.store_host
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
        except (OSError, TypeError, ValueError):
            raise ConfigError(
                f"store_host {address!r} is not an IPv4 or IPv6 address; give an address, not a "
                "name"
            ) from None
        if not 0 <= port <= 65_535:
            raise ConfigError(f"the port of store_host is {port}; it must be from 0 to 65535")
        if self.index_entries < 2:
            raise ConfigError(
                f"index_entries is {self.index_entries}; it must be at least 2, "
                "because entry 0 is never used"
            )
        queue_bytes = self.consume_queue_segment_entries * CONSUME_QUEUE_ENTRY_BYTES
        index_bytes = 40 + self.index_entries * 20  # header, entries; the slots are added below
        for what, file_bytes in (
            ("consume_queue_segment_entries", queue_bytes),
            ("consume_queue_ext_segment_bytes", self.consume_queue_ext_segment_bytes),
            ("index_hash_slots and index_entries", self.index_hash_slots * 4 + index_bytes),
        ):
            if file_bytes >= _FILE_BYTES_MAX:
                raise ConfigError(
                    f"{what} make files of {file_bytes} bytes; the limit is below 2 GiB"
                )

    def _check_types(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # isinstance would accept True as a number, and store.json would keep it.
            if field.name != "store_host" and type(value) is not type(field.default):
                kind = type(field.default).__name__
                raise ConfigError(f"{field.name} is {value!r:.80}; its type must be {kind}")
