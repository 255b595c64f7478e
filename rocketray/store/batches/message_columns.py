"""A producer's batch under collection: columns of its messages, packed in one kernel call.

The result equals that of :func:`~.encoded_batch.encode_messages` and ``pack_batch`` for the same
messages. A message without a unique key of its own gets one: the producer's prefix and a
number, which grows by one from message to message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rocketray.base.message_parts import (
    check_topic_and_tag,
    encode_text,
    keys_text,
    properties_text,
)
from rocketray.base.property_string import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rocketray.errors import MessageTooLargeError
from rocketray.hashing import java_hash_code, tags_code
from rocketray.kernels.drain import BATCH_HEADER_BYTES
from rocketray.kernels.layout import HOST_BYTES
from rocketray.kernels.pack import (
    BODY_SIZE,
    BORN_MS,
    COLUMN_COUNT,
    FLAGS,
    ID_DIGITS,
    IS_NUMBERED,
    KEYS_SIZE,
    SYS_FLAGS,
    TAGS_CODE,
    TAIL_SIZE,
    pack_messages,
)
from rocketray.message import (
    BODY_MAX_BYTES,
    IMPORTED_OFFSET_ID,
    KEYS,
    PROPERTIES_MAX_BYTES,
    TAGS,
    UNIQUE_KEY,
    Message,
    check_body,
    check_tag,
    with_sharding_key,
)
from rocketray.store.formats.compression import Compression
from rocketray.store.formats.property_crc import CRC_ROOM

from .batch_form import (
    RecordOptions,
    born_host_form,
    record_header,
    topic_form,
    write_frame_header,
)

_KNOWN_TAGS_MAX = 4096  # then the table is emptied: tags may all be different
_KNOWN_KEY_BYTES_MAX = 256  # with 4096 of them a producer keeps 1 MiB a topic
_KEY_END = PROPERTY_SEPARATOR.encode()
_PLAIN = RecordOptions()


class RecordForm:
    """The parts that all records of one producer for one topic share, and the tags seen so far."""

    def __init__(
        self,
        topic: str,
        *,
        born_host: tuple[str, int],
        id_prefix: str,
        options: RecordOptions = _PLAIN,
    ) -> None:
        """Prepare the shared parts; *id_prefix* begins every generated unique key.

        Of *options* the sysflag and the width of the store host are not used.
        """
        form = topic_form(topic)
        host = born_host_form(*born_host)
        header = record_header(len(host.encoded), HOST_BYTES).pack(
            0, form.magic, 0, 0, 0, 0, 0, host.sys_flag,
            0, host.encoded, 0, bytes(HOST_BYTES), 0, 0, 0,
        )  # fmt: skip
        id_field = f"{UNIQUE_KEY}{NAME_VALUE_SEPARATOR}{id_prefix}".encode()
        self.topic = topic
        self.id_prefix = id_prefix
        self.compression = options.compression
        self.crc_room = CRC_ROOM if options.properties_crc else b""
        """Room for the CRC at the end of the properties."""
        self.sys_flag = host.sys_flag
        self.key_seed = form.key_seed
        self.id_seed = java_hash_code(f"{topic}#{id_prefix}")
        self.id_bytes = len(id_field) + ID_DIGITS + len(PROPERTY_SEPARATOR)
        self.record_bytes = len(header) + len(form.field) + 2  # plus the body and the properties
        self._tail_max = PROPERTIES_MAX_BYTES - self.id_bytes
        self.header = np.frombuffer(header, np.uint8)
        self.topic_field = np.frombuffer(form.field, np.uint8)
        self.id_field = np.frombuffer(id_field, np.uint8)
        self.tags = _KnownTags(self)
        """The property of each tag and its code."""
        self.keyed = _KnownKeys(self)
        """The properties of each tag and sharding key."""

    def tail(self, text: str) -> bytes:
        """Return a property string without a unique key, in UTF-8; raises as encode_text.

        There is room for the record's CRC behind it, if it leaves any.
        """
        encoded = text.encode() if text.isascii() else encode_text(text, self.topic)
        tail = encoded + self.crc_room
        if len(tail) <= self._tail_max:
            return tail
        return self._finish(encode_text(text, self.topic), None)

    def tails(self, messages: Sequence[Message], encoded: Sequence[bytes]) -> list[bytes]:
        """Return what :meth:`tail` does, for messages with their encoded properties."""
        room = self.crc_room
        if max(map(len, encoded)) <= PROPERTIES_MAX_BYTES - self.id_bytes - len(room):
            return [one + room for one in encoded]
        return [
            self._finish(properties, one.unique_key)
            for one, properties in zip(messages, encoded, strict=True)
        ]

    def _finish(self, tail: bytes, unique_key: str | None) -> bytes:
        size = len(tail) + (0 if unique_key else self.id_bytes)
        if size > PROPERTIES_MAX_BYTES:
            raise MessageTooLargeError(
                f"topic {self.topic!r}: a property string", size, PROPERTIES_MAX_BYTES
            )
        has_room = size + len(self.crc_room) <= PROPERTIES_MAX_BYTES
        return tail + self.crc_room if has_room else tail


class _KnownTags(dict[str | None, tuple[str, bytes, int]]):
    """The property string of each tag seen so far, as text and as a tail, and its code.

    A new tag is checked and added on access.
    """

    def __init__(self, form: RecordForm) -> None:
        super().__init__()
        self._form = form

    def __missing__(self, tags: str | None) -> tuple[str, bytes, int]:
        """Add *tags*; raise :class:`InvalidMessageError` if it is not a tag."""
        if len(self) >= _KNOWN_TAGS_MAX:
            self.clear()
        check_topic_and_tag(self._form.topic, tags)
        text = f"{TAGS}\x01{tags}\x02" if tags else ""
        known = text, self._form.tail(text), tags_code(tags)
        self[tags] = known
        return known


class _KnownKeys(dict[tuple[str | None, str], bytes]):
    """Properties of each tag, which was checked, with each sharding key; new keys are checked."""

    def __init__(self, form: RecordForm) -> None:
        super().__init__()
        self._form = form

    def __missing__(self, known: tuple[str | None, str]) -> bytes:
        """Return the properties, and keep them unless they are long; raises as properties_text."""
        tags, sharding_key = known
        form = self._form
        properties = with_sharding_key(None, sharding_key, form.topic)
        tail = form.tail(form.tags[tags][0] + properties_text(properties, form.topic))
        if len(tail) <= _KNOWN_KEY_BYTES_MAX:
            if len(self) >= _KNOWN_TAGS_MAX:
                self.clear()
            self[known] = tail
        return tail


class MessageColumns:
    """Messages of one topic in the order they were added; each is checked when added."""

    __slots__ = ("_bodies", "_codes", "_form", "_keys", "_own", "_tails", "own_ids", "size")

    def __init__(self, form: RecordForm) -> None:
        self._form = form
        self._bodies: list[bytes] = []
        self._tails: list[bytes] = []
        self._codes: list[int] = []
        self._keys: list[str] = []  # those that it is looked up by, each ended by 0x02
        self._own: dict[int, Message] = {}  # those with more than body, tags, keys and properties
        self.own_ids: dict[int, str] = {}
        """The unique keys of messages that had one, by the number of the message."""
        self.size = 0
        """Bytes of the uncompressed bodies and the properties."""

    def __len__(self) -> int:
        return len(self._bodies)

    def add(
        self,
        body: bytes,
        tags: str | None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
    ) -> int:
        """Add a message and return its number; it keeps *sharding_key* as a property.

        Raises:
            InvalidMessageError, MessageTooLargeError: it was not added.
        """
        form = self._form
        try:
            tag_text, tail, code = form.tags[tags]
        except TypeError:  # such as a list, which is not a tag either
            check_tag(tags or "")
            raise
        if body.__class__ is not bytes or len(body) > BODY_MAX_BYTES:
            body = _checked_body(form.topic, body)
        looked_up = ""
        if keys or properties:
            if sharding_key:
                properties = with_sharding_key(properties, sharding_key, form.topic)
            joined = f"{keys_text(keys)}\x02" if keys else ""
            text = properties_text(properties, form.topic) if properties else ""
            if joined:
                text = f"{KEYS}\x01{joined}{tag_text}{text}"
                # A blank is between keys: within one it is stored as another character.
                looked_up = joined if keys.__class__ is str else joined.replace(" ", "\x02")
            else:
                text = tag_text + text
            if properties and IMPORTED_OFFSET_ID in properties:  # it is indexed like a key
                looked_up += f"{properties[IMPORTED_OFFSET_ID]}\x02"
            tail = form.tail(text)
        elif sharding_key:
            tail = form.keyed[tags, sharding_key]
        # All that may fail comes before the first list is changed.
        self.size += len(body) + len(tail)
        self._bodies.append(body)
        self._tails.append(tail)
        self._keys.append(looked_up)
        codes = self._codes
        codes.append(code)
        return len(codes) - 1

    def add_message(self, message: Message) -> int:
        """Add any message of the topic and return its number; raises as :meth:`add`."""
        self.extend([message], [message.encoded_properties()])
        return len(self._codes) - 1

    def packed_max_bytes(self) -> int:
        """Return the greatest size that :meth:`pack` may return; compression makes it smaller."""
        form, n = self._form, len(self._bodies)
        keys = n + "".join(self._keys).count(PROPERTY_SEPARATOR)
        # As if every message got a unique key.
        records = n * (form.record_bytes + form.id_bytes) + self.size
        return BATCH_HEADER_BYTES + 12 * n + 8 * keys + records

    def extend(self, messages: Sequence[Message], encoded: Sequence[bytes]) -> None:
        """Add any messages of the topic, with their :meth:`~.Message.encoded_properties`.

        Raises:
            InvalidMessageError, MessageTooLargeError: none was added.
        """
        first, bodies = len(self._bodies), [message.body for message in messages]
        if {*map(type, bodies)} != {bytes}:
            bodies = [_checked_body(self._form.topic, body) for body in bodies]
        if not bodies:
            return
        # All that may fail comes before the first list is changed, so an error adds none.
        tails = self._form.tails(messages, encoded)
        codes = {tags: tags_code(tags) for tags in {message.tags for message in messages}}
        self._bodies += bodies
        self._tails += tails
        self._codes += [codes[message.tags] for message in messages]
        self.size += sum(map(len, bodies)) + sum(map(len, tails))
        for number, message in enumerate(messages, first):
            keys, unique_key = message.keys, message.unique_key
            if unique_key:
                keys = (unique_key, *keys)
                self.own_ids[number] = unique_key
            if unique_key or message.flag or message.born_timestamp_ms is not None:
                self._own[number] = message
            if IMPORTED_OFFSET_ID in message.properties:  # it is indexed like a key
                keys = (*keys, message.properties[IMPORTED_OFFSET_ID])
            self._keys.append(f"{PROPERTY_SEPARATOR.join(keys)}\x02" if keys else "")

    def pack(self, first_id: int, now_ms: int) -> RowsPacking:
        """Return the batch to be packed; nothing is added to the columns any more.

        *first_id* is the number in the unique key of the first message, *now_ms* the born time of
        messages without one.
        """
        form, n, bodies = self._form, len(self._bodies), self._bodies
        sizes, tails = [*map(len, bodies)], self._tails
        keys, keys_sizes = _encoded(self._keys)
        tail_sizes = [*map(len, tails)]
        first = sizes[0], tail_sizes[0], keys_sizes[0], self._codes[0]
        alike = (*first, 0, form.sys_flag, now_ms, 1)
        if n == 1:  # takes half the time
            rows = np.array(alike, np.int64).reshape(1, COLUMN_COUNT)
        else:
            rows = np.empty((n, COLUMN_COUNT), np.int64)
            rows[:] = alike
            for column, values in (
                (BODY_SIZE, sizes),
                (TAIL_SIZE, tail_sizes),
                (KEYS_SIZE, keys_sizes),
                (TAGS_CODE, self._codes),
            ):
                if values.count(values[0]) < n:  # counting takes a tenth of the time
                    rows[:, column] = values
        if form.compression is not None:
            bodies = compress_rows(form.compression, bodies, rows)
        for number, message in self._own.items():
            rows[number, FLAGS] = message.flag
            rows[number, IS_NUMBERED] = not message.unique_key
            if message.born_timestamp_ms is not None:
                rows[number, BORN_MS] = message.born_timestamp_ms
        numbered = n - len(self.own_ids)
        return RowsPacking(
            *(form, rows, bodies, b"".join(tails), keys), first_id=first_id, numbered=numbered
        )


def compress_rows(
    compression: Compression, bodies: Sequence[bytes], rows: npt.NDArray[np.int64]
) -> list[bytes]:
    """Return bodies in stored form, and note in their *rows* which are compressed."""
    stored = [compression.compress(body) for body in bodies]
    is_smaller = [body is not before for body, before in zip(stored, bodies, strict=True)]
    rows[is_smaller, SYS_FLAGS] |= compression.sys_flag
    rows[:, BODY_SIZE] = [*map(len, stored)]
    return stored


class RowsPacking:
    """Messages of a batch that is ready to be packed: a :class:`~.encoded_batch.Packing`.

    *rows* are their numbers, int64[n, COLUMN_COUNT]: which of them get a unique key, for one.
    """

    def __init__(
        self,
        form: RecordForm,
        rows: npt.NDArray[np.int64],
        bodies: Sequence[bytes],
        tails: bytes | npt.NDArray[np.uint8],
        keys: bytes,
        *,
        first_id: int,
        numbered: int,
    ) -> None:
        """Take stored bodies, the other parts back to back, and how many get a unique key."""
        self._form, self._rows, self._first_id = form, rows, first_id
        self._bodies = np.frombuffer(b"".join(bodies), np.uint8)
        self._tails = np.frombuffer(tails, np.uint8)
        self._keys = np.frombuffer(keys, np.uint8)
        self._key_count = numbered + keys.count(_KEY_END)
        self._record_bytes = len(rows) * form.record_bytes + numbered * form.id_bytes
        self._record_bytes += len(self._bodies) + len(self._tails)
        self.packed_bytes = (
            BATCH_HEADER_BYTES + 12 * len(rows) + 8 * self._key_count + self._record_bytes
        )
        """The size of the frame that :meth:`pack_into` writes."""

    def sizes(self) -> npt.NDArray[np.int32]:
        """Return the sizes of the records, int32[n]."""
        rows, form = self._rows, self._form
        sizes = rows[:, BODY_SIZE] + rows[:, TAIL_SIZE] + rows[:, IS_NUMBERED] * form.id_bytes
        return (sizes + form.record_bytes).astype(np.int32)

    def pack_into(self, out: npt.NDArray[np.uint8]) -> None:
        form = self._form
        write_frame_header(out, len(self._rows), self._key_count, self._record_bytes)
        pack_messages(
            out,
            form.header,
            form.topic_field,
            form.key_seed,
            form.id_field,
            form.id_seed,
            self._first_id,
            self._bodies,
            self._tails,
            self._keys,
            self._rows,
        )


def _encoded(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """Return texts back to back in UTF-8, and the size of each."""
    joined = "".join(texts)
    if joined.isascii():
        return joined.encode(), [*map(len, texts)]
    each = [text.encode() for text in texts]
    return b"".join(each), [*map(len, each)]


def _checked_body(topic: str, body: bytes | bytearray | memoryview) -> bytes:
    check_body(topic, body)
    return bytes(body)
