"""An encoded batch, and the parts that all records of one topic and one producer share."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.base.property_string import PROPERTY_SEPARATOR
from rocketray.errors import ConfigError, CorruptRecordError, InvalidMessageError
from rocketray.hashing import java_hash_code
from rocketray.kernels.append import is_whole_batch
from rocketray.kernels.drain import BATCH_MAGIC
from rocketray.kernels.hashing import separated_key_hashes
from rocketray.kernels.layout import (
    BORN_HOST,
    HOST_BYTES,
    HOST_IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG,
    TOPIC_V1_MAX_BYTES,
)
from rocketray.kernels.records import find_property_strings
from rocketray.store.formats.compression import Compression
from rocketray.store.formats.sys_flag import BORN_IPV6, SETTABLE, STORE_IPV6, TRANSACTION

FRAME_HEADER = struct.Struct("<4sIIIQ")
"""The header of a packed batch: see encoded_batch.py."""
_KEY_END = PROPERTY_SEPARATOR.encode()


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Records of one topic for one queue, with the data that the queue and the index need of each.

    - ``records`` uint8[total] back to back, ``sizes`` int32[n], ``tags_codes`` int64[n].
    - For each index key, unique key first: ``key_hashes`` int32[k], and in ``key_records`` int32[k]
      the number of its record, never decreasing.
    - All records have one transaction state.
    - With ``keeps_store_times`` they were stored in another store before, and keep those store
      times.
    - ``owner_epoch`` is the ownership epoch of their sender; 0 without one.
    """

    records: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int32]
    tags_codes: npt.NDArray[np.int64]
    key_hashes: npt.NDArray[np.int32]
    key_records: npt.NDArray[np.int32]
    keeps_store_times: bool = False
    owner_epoch: int = 0

    def __len__(self) -> int:
        return len(self.sizes)

    def starts(self) -> npt.NDArray[np.int64]:
        """Return the start of each record, from the batch's own first byte: int64[n]."""
        ends: npt.NDArray[np.int64] = np.cumsum(self.sizes, dtype=np.int64)
        return ends - self.sizes

    @property
    def transaction(self) -> int:
        """The transaction state of the first record, and so of all: 0 without a transaction."""
        # The low byte of the big-endian SYSFLAG; what is shorter has no record and no state.
        last = SYS_FLAG + 3
        return int(self.records[last]) & TRANSACTION if len(self.records) > last else 0

    def without_first(self, count: int) -> EncodedBatch:
        """Return the batch without its first *count* records, which are stored.

        It has no ownership epoch: that was checked when they were stored.
        """
        kept: npt.NDArray[np.bool_] = self.key_records >= count
        return EncodedBatch(
            records=self.records[int(self.sizes[:count].sum()) :],
            sizes=self.sizes[count:],
            tags_codes=self.tags_codes[count:],
            key_hashes=self.key_hashes[kept],
            key_records=self.key_records[kept] - np.int32(count),
            keeps_store_times=self.keeps_store_times,
        )

    def property_spans(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the starts of the property strings in ``records``, and their sizes: int64[n] each.

        Raises:
            CorruptRecordError: the records do not agree with ``sizes``.
        """
        starts, sizes = np.empty(len(self), np.int64), np.empty(len(self), np.int64)
        bad = find_property_strings(self.records, self.sizes, starts, sizes)
        if bad >= 0:
            where = int(self.starts()[bad])
            raise CorruptRecordError("a batch", where, f"record {bad} is incomplete")
        return starts, sizes


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options for encoding the messages of one batch to records.

    - ``compression`` of the bodies.
    - ``sys_flag``: bits that all records get, such as MULTI_TAGS or a transaction's state.
    - ``properties_crc`` leaves room for a CRC of the record at the end of its properties, where
      their limit allows it.
    - ``store_ipv6`` leaves room for an IPv6 store host, if the store of the batch has one.
    """

    compression: Compression | None = None
    sys_flag: int = 0
    store_ipv6: bool = False
    properties_crc: bool = True

    def __post_init__(self) -> None:
        if self.sys_flag & ~SETTABLE:
            raise ConfigError(
                f"sys_flag {self.sys_flag:#x} has bits that depend on a record's content; only "
                f"those of {SETTABLE:#x} can be set"
            )

    @property
    def store_host_bytes(self) -> int:
        return HOST_BYTES + HOST_IPV6_EXTRA * self.store_ipv6

    @property
    def every_sys_flag(self) -> int:
        """The bits that every record gets."""
        return self.sys_flag | STORE_IPV6 * self.store_ipv6


def store_times(
    batch: EncodedBatch, last_ms: int, clock_ms: Callable[[], int]
) -> npt.NDArray[np.int64]:
    """Return the store time of each record, int64[n]: now, or its own; none is before *last_ms*.

    Raises:
        InvalidMessageError: the batch keeps its store times, and they decrease; or its sizes are
            not those of its records.
    """
    if not batch.keeps_store_times:
        return np.full(len(batch), max(clock_ms(), last_ms), np.int64)
    # Before the sizes are used as positions: the batch may come from another process.
    if not is_whole_batch(batch.sizes, batch.key_records, len(batch.records)):
        raise InvalidMessageError("the sizes of a batch are not those of its records")
    starts = batch.starts()
    is_ipv6 = batch.records[starts + (SYS_FLAG + 3)] & BORN_IPV6 != 0
    at = starts + BORN_HOST + np.where(is_ipv6, HOST_BYTES + HOST_IPV6_EXTRA, HOST_BYTES)
    raw = batch.records[at[:, None] + np.arange(8)]
    times: npt.NDArray[np.int64] = raw.view(">i8")[:, 0].astype(np.int64)
    if times[0] < last_ms or (np.diff(times) < 0).any():
        raise InvalidMessageError(
            "the store times of a batch that keeps them must be in order, and none before "
            f"{last_ms}, the time of the last message in the store"
        )
    return times


class BornHost(NamedTuple):
    """A producer's address in record form, with the sysflag bit for its width."""

    encoded: bytes
    sys_flag: int


class TopicForm(NamedTuple):
    """The parts that all records of a topic share."""

    magic: int
    field: bytes  # the topic behind its length
    key_seed: int  # the hash of "topic#", the start of every index key


@lru_cache(maxsize=1024)  # topics that a process sends to, or stores
def topic_form(topic: str) -> TopicForm:
    """Return the record version and the topic field for *topic*, a valid name."""
    name = topic.encode()
    seed = java_hash_code(f"{topic}#")
    if len(name) <= TOPIC_V1_MAX_BYTES:
        return TopicForm(MAGIC_V1, bytes([len(name)]) + name, seed)
    return TopicForm(MAGIC_V2, len(name).to_bytes(2, "big") + name, seed)


@lru_cache(maxsize=64)  # as many as a process has producers' addresses, with room
def born_host_form(host: str, port: int) -> BornHost:
    """Return an IPv4 or IPv6 address and a port in record form; names are never resolved."""
    family, sys_flag = (socket.AF_INET6, BORN_IPV6) if ":" in host else (socket.AF_INET, 0)
    try:
        return BornHost(socket.inet_pton(family, host) + port.to_bytes(4, "big"), sys_flag)
    except (OSError, OverflowError):
        raise ConfigError(
            f"born host {host!r}:{port} is not an IPv4 or IPv6 address with a port"
        ) from None


def write_frame_header(
    out: npt.NDArray[np.uint8], records: int, keys: int, record_bytes: int
) -> None:
    """Write the header of a packed batch to the front of *out*."""
    FRAME_HEADER.pack_into(out.data, 0, BATCH_MAGIC, records, keys, 0, record_bytes)


# Born host and store host are IPv4 or IPv6: four headers.
@lru_cache(maxsize=4)
def record_header(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    """Return the struct of a record up to its body: size, magic, CRC … body length."""
    return struct.Struct(f">iiiiiqqiq{born_host_bytes}sq{store_host_bytes}siqi")


class RecordCollector:
    """Whole records of one topic, collected to a batch with the data that queue and index need.

    They are in the order they were added, all in one transaction state; ``size`` is in bytes. Also
    for imported records, which hold more than a producer's message does.
    """

    def __init__(self, topic: str) -> None:
        self._key_seed = topic_form(topic).key_seed
        self._records: list[bytes] = []
        self._tags_codes: list[int] = []
        self._keys: list[bytes] = []
        self._key_records: list[int] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: bytes, code: int, keys: Iterable[bytes]) -> None:
        """Add a record with its tags code and its index keys, unique key first; skip empty keys."""
        keys = [key for key in keys if key]
        self._keys += keys
        self._key_records += [len(self._records)] * len(keys)
        self._tags_codes.append(code)
        self._records.append(record)
        self.size += len(record)

    def encode(self, *, keeps_store_times: bool) -> EncodedBatch:
        return EncodedBatch(
            np.frombuffer(b"".join(self._records), np.uint8),
            np.array([len(record) for record in self._records], np.int32),
            np.array(self._tags_codes, np.int64),
            self._hash_keys(),
            np.array(self._key_records, np.int32),
            keeps_store_times=keeps_store_times,
        )

    def _hash_keys(self) -> npt.NDArray[np.int32]:
        joined = b"".join([key + _KEY_END for key in self._keys])
        hashes = np.empty(len(self._keys), np.int32)
        count = separated_key_hashes(np.frombuffer(joined, np.uint8), self._key_seed, hashes)
        assert count == len(hashes)
        return hashes
