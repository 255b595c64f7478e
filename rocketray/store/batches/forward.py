"""Batches of messages that are stored again: retries, delayed messages, committed transactions.

They keep unique key, body, flag, born time and born host, and get a new place and store time.
The body is stored as given, so the compression flags are cleared; the flags for the width of a
host follow from the hosts. RocketMQ's CRC property is removed, because only the store can write a
new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.hashing import tags_code
from rocketray.message import (
    CRC_PROPERTY,
    IMPORTED_OFFSET_ID,
    KEYS,
    PROPERTIES_MAX_BYTES,
    TAGS,
    UNIQUE_KEY,
    ForwardedMessage,
    encode_properties,
)
from rocketray.store.formats.record import RecordValues, encode_record
from rocketray.store.formats.sys_flag import (
    BORN_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    STORE_IPV6,
    TRANSACTION,
)

from .batch_form import EncodedBatch, hash_keys, topic_form

__all__ = ["RecordCollector", "encode_forwarded"]

_NOWHERE = ("0.0.0.0", 0)  # noqa: S104  # a placeholder for the store's own host
_CLEARED = COMPRESSED | COMPRESSION_TYPE | BORN_IPV6 | STORE_IPV6


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
        """Return the batch; see :class:`EncodedBatch`."""
        return EncodedBatch(
            np.frombuffer(b"".join(self._records), np.uint8),
            np.array([len(record) for record in self._records], np.int32),
            np.array(self._tags_codes, np.int64),
            hash_keys(self._keys, self._key_seed),
            np.array(self._key_records, np.int32),
            keeps_store_times=keeps_store_times,
        )


def encode_forwarded(messages: Sequence[ForwardedMessage]) -> EncodedBatch:
    """Encode messages of one topic and one transaction state, in their order.

    Raises:
        InvalidMessageError: there are none, or not all are of one topic and one state.
        MessageTooLargeError: the properties of one are too long.
    """
    if not messages:
        raise InvalidMessageError("a batch has no messages; send at least one")
    topic, transaction = messages[0].topic, messages[0].sys_flag & TRANSACTION
    collected = RecordCollector(topic)
    for message in messages:
        if message.topic != topic or message.sys_flag & TRANSACTION != transaction:
            raise InvalidMessageError(
                f"a batch is of one topic and one state of a transaction: {topic!r} and "
                f"{message.topic!r} do not go together; send them separately"
            )
        named = {name: text for name, text in message.properties.items() if name != CRC_PROPERTY}
        properties = encode_properties(named).encode()
        if len(properties) > PROPERTIES_MAX_BYTES:
            raise MessageTooLargeError(
                f"topic {topic!r}: a property string", len(properties), PROPERTIES_MAX_BYTES
            )
        record = encode_record(
            RecordValues(
                topic,
                message.body,
                properties,
                queue_id=0,
                queue_offset=0,
                physical_offset=0,
                born_timestamp_ms=message.born_timestamp_ms,
                born_host=message.born_host,
                store_timestamp_ms=0,
                store_host=_NOWHERE,
                flag=message.flag,
                sys_flag=message.sys_flag & ~_CLEARED,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
        )
        keys = [named.get(UNIQUE_KEY, ""), *named.get(KEYS, "").split(" ")]
        keys.append(named.get(IMPORTED_OFFSET_ID, ""))
        collected.add(record, tags_code(named.get(TAGS)), [key.encode() for key in keys])
    return collected.encode(keeps_store_times=False)
