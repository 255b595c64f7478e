"""Batches of messages that are stored again: retries, delayed messages, committed transactions.

They keep unique key, body, flag, born time and born host, and get a new place and store time.
The body is stored as given, so the compression flags are cleared; the flags for the width of a
host follow from the hosts. Each record gets a CRC of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketray.base.property_string import encode_properties
from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.hashing import tags_code
from rocketray.message import (
    IMPORTED_OFFSET_ID,
    KEYS,
    PROPERTIES_MAX_BYTES,
    TAGS,
    UNIQUE_KEY,
    ForwardedMessage,
)
from rocketray.store.formats.property_crc import with_crc_property
from rocketray.store.formats.record import RecordValues, encode_record
from rocketray.store.formats.sys_flag import (
    BORN_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    STORE_IPV6,
    TRANSACTION,
)

from .batch_form import EncodedBatch, RecordCollector

# A record is stored with an inflated body, and encode_record sets the widths of its hosts.
_CLEARED = COMPRESSED | COMPRESSION_TYPE | BORN_IPV6 | STORE_IPV6


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
        named = message.properties
        properties = encode_properties(named).encode()
        if len(properties) > PROPERTIES_MAX_BYTES:
            raise MessageTooLargeError(
                f"topic {topic!r}: a property string", len(properties), PROPERTIES_MAX_BYTES
            )
        record = encode_record(
            RecordValues(
                topic,
                message.body,
                with_crc_property(properties),
                born_timestamp_ms=message.born_timestamp_ms,
                born_host=message.born_host,
                flag=message.flag,
                sys_flag=message.sys_flag & ~_CLEARED,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
        )
        keys = [named.get(UNIQUE_KEY, ""), *named.get(KEYS, "").split(" ")]
        # Indexed like a key, as at the import.
        keys.append(named.get(IMPORTED_OFFSET_ID, ""))
        collected.add(record, tags_code(named.get(TAGS)), [key.encode() for key in keys])
    return collected.encode(keeps_store_times=False)
