"""Whole records of one topic, collected to a batch with the data that queue and index need.

For records that come one by one and hold more than a producer's message does: imported records,
and records that are stored again elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rocketray.kernels.hashing import separated_key_hashes

from .batch_form import EncodedBatch, topic_form

__all__ = ["RecordCollector"]

_KEY_END = b"\x02"


class RecordCollector:
    """Records in the order they were added, all in one transaction state; ``size`` in bytes."""

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
        """Return the batch; see :class:`EncodedBatch`."""
        joined = b"".join([key + _KEY_END for key in self._keys])
        hashes = np.empty(len(self._keys), np.int32)
        count = separated_key_hashes(np.frombuffer(joined, np.uint8), self._key_seed, hashes)
        assert count == len(self._keys)
        return EncodedBatch(
            np.frombuffer(b"".join(self._records), np.uint8),
            np.array([len(record) for record in self._records], np.int32),
            np.array(self._tags_codes, np.int64),
            hashes,
            np.array(self._key_records, np.int32),
            keeps_store_times=keeps_store_times,
        )
