"""Messages of one topic as lists: their bodies, and a column of texts for each property.

A column has one text for all messages, or one for each; None is "absent". So no Python call is made
for a message, and one kernel call encodes the properties of all. The result equals that of
:class:`~.message_columns.MessageColumns` for the same messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from rocketray.base.message_parts import UNLIKE_OTHERS
from rocketray.base.property_string import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    encode_properties,
)
from rocketray.errors import InvalidMessageError, MessageTooLargeError, StreamError
from rocketray.kernels.pack import (
    BODY_SIZE,
    BORN_MS,
    COLUMN_COUNT,
    FIELD_COLUMNS,
    KEYS_SIZE,
    OF_ANY,
    OF_KEYS,
    OF_TAGS,
    TAIL_SIZE,
    join_texts,
)
from rocketray.message import (
    BODY_MAX_BYTES,
    KEYS,
    PROPERTIES_MAX_BYTES,
    TAGS,
    Message,
)

from .message_columns import RecordForm, RowsPacking, compress_rows

_NO_PROPERTIES: Mapping[str, str] = {}  # one for all, which takes no memory for each
_Bytes = npt.NDArray[np.uint8]
_Columns = tuple[list[bytes], list[str | None], list[Sequence[str]], list[Mapping[str, str]]]
_ROLES = {KEYS: OF_KEYS, TAGS: OF_TAGS}


class TextColumn(NamedTuple):
    """The texts of one property, each ended by 0x02, an empty one for "absent"."""

    name: str
    joined: str
    is_alike: bool = False
    """Whether it is one text, for all messages."""

    @classmethod
    def of(cls, name: str, texts: Sequence[str | None]) -> TextColumn | None:
        """Return the column with a text for each message; None if one cannot be a property's."""
        end = PROPERTY_SEPARATOR
        try:
            joined = end.join(texts) + end  # type: ignore[arg-type]  # fails for a None
        except TypeError:
            if "" in texts or not all(text is None or isinstance(text, str) for text in texts):
                return None
            joined = end.join([text or "" for text in texts]) + end
        else:
            if joined.startswith(end) or end + end in joined:
                return None
        # A text with a separator in it shows as one end too many.
        is_refused = "\0" in joined or NAME_VALUE_SEPARATOR in joined
        return None if is_refused or joined.count(end) != len(texts) else cls(name, joined)

    def text(self, number: int) -> str:
        """Return the text of one message; empty if it is absent."""
        return self.joined.split(PROPERTY_SEPARATOR)[0 if self.is_alike else number]


class GatheredMessages(Sequence[Message]):
    """Messages of one topic that are added one by one, and held as columns until they are sent.

    A message object is recreated when it is read. Of thousands that wait, the garbage collector
    would look at each several times, and after so many new ones at all objects of the program.
    """

    __slots__ = ("_bodies", "_keys", "_others", "_tags", "properties", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._bodies: list[bytes] = []
        self._tags: list[str | None] = []
        self._keys: list[Sequence[str]] = []
        self.properties: list[Mapping[str, str]] = []
        """The properties of each message."""
        self._others: dict[int, Message] = {}  # those with more than body, tags, keys, properties

    def append(self, message: Message) -> int:
        """Add a message of the topic, and return its number."""
        number = len(self._bodies)
        if message.unique_key or message.flag or message.born_timestamp_ms is not None:
            self._others[number] = message
        self._bodies.append(message.body)
        self._tags.append(message.tags)
        self._keys.append(message.keys)
        self.properties.append(message.properties or _NO_PROPERTIES)
        return number

    def columns(self) -> _Columns | None:
        """Return the bodies, tags, keys and properties; None if a message has more than these."""
        if self._others:
            return None
        return self._bodies, self._tags, self._keys, self.properties

    def __len__(self) -> int:
        return len(self._bodies)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        numbers = range(len(self._bodies))[index]
        return [*map(self._made, numbers)] if isinstance(numbers, range) else self._made(numbers)

    def _made(self, number: int) -> Message:
        return self._others.get(number) or Message(
            self.topic,
            self._bodies[number],
            self._tags[number],
            self._keys[number],
            self.properties[number],
        )


@dataclass(frozen=True, slots=True)
class MessageLists:
    """Valid messages, with their columns in the order in which properties are stored."""

    topic: str
    bodies: Sequence[bytes]
    columns: Sequence[TextColumn]

    @classmethod
    def of(cls, topic: str, messages: Sequence[Message]) -> MessageLists | None:
        """Return the columns of messages; None if they have none.

        That is so if one has more than body, tag, keys and properties, or others have properties of
        other names. All properties are stored in the order in which the first message has them.
        """
        found = messages.columns() if isinstance(messages, GatheredMessages) else _columns(messages)
        if found is None:
            return None
        bodies, tags, keys, properties = found
        count = len(messages)
        names = tuple(properties[0])
        kinds, sizes = [*map(type, properties)], [*map(len, properties)]
        is_alike = kinds.count(dict) == count and sizes.count(len(names)) == count
        if not is_alike or not UNLIKE_OTHERS.isdisjoint(names) or not plain_bodies(bodies):
            return None
        columns = []
        if any(keys):
            has_one = [*map(len, keys)].count(1) == count
            texts = map(itemgetter(0), keys) if has_one else (" ".join(one) or None for one in keys)
            columns.append(TextColumn.of(KEYS, [*texts]))
        if any(tags):
            columns.append(TextColumn.of(TAGS, tags))
        try:
            columns += [TextColumn.of(name, [one[name] for one in properties]) for name in names]
        except KeyError:  # one has as many properties, of other names
            return None
        valid = [column for column in columns if column is not None]
        return cls(topic, bodies, valid) if len(valid) == len(columns) else None

    def has_property(self, name: str) -> bool:
        return any(column.name == name for column in self.columns)

    def encode(self, form: RecordForm) -> EncodedLists:
        """Encode the properties of all messages.

        Raises:
            InvalidMessageError, MessageTooLargeError: those of a message cannot be stored; the
                error has its number.
        """
        count, room = len(self.bodies), np.frombuffer(form.crc_room, np.uint8)
        names, texts, fields = [], [], []
        names_size = texts_size = tails_size = 0
        for name, joined, is_alike in self.columns:
            try:
                names.append(f"{name}{NAME_VALUE_SEPARATOR}".encode())
                texts.append(joined.encode())
            except UnicodeEncodeError:
                # Only now is each message looked at: to check them one by one costs what columns
                # save.
                raise self._error_of(form, range(count)) from None
            names_size += len(names[-1])
            fields.append((names_size, texts_size, is_alike, _ROLES.get(name, OF_ANY)))
            texts_size += len(texts[-1])
            tails_size += len(texts[-1]) * (count if is_alike else 1)
        tails = np.empty(tails_size + count * (names_size + len(room)), np.uint8)
        keys = np.empty(tails_size if names and self.columns[0].name == KEYS else 0, np.uint8)
        rows = np.empty((count, COLUMN_COUNT), np.int64)
        rows[:] = (0, 0, 0, 0, 0, form.sys_flag, 0, 1)
        rows[:, BODY_SIZE] = [*map(len, self.bodies)]
        size = join_texts(
            np.frombuffer(b"".join(texts), np.uint8),
            np.frombuffer(b"".join(names), np.uint8),
            np.array(fields, np.int64).reshape(len(fields), FIELD_COLUMNS),
            room,
            PROPERTIES_MAX_BYTES - form.id_bytes,
            tails,
            keys,
            rows,
        )
        if size < 0:
            raise self._error_of(form, [-1 - size])
        return EncodedLists(form, self.bodies, rows, tails[:size], keys)

    def _error_of(self, form: RecordForm, numbers: Iterable[int]) -> StreamError:
        """Return the error of the first of those messages whose properties cannot be stored."""
        for number in numbers:
            texts = {column.name: column.text(number) for column in self.columns}
            try:
                form.tail(encode_properties({name: text for name, text in texts.items() if text}))
            except (InvalidMessageError, MessageTooLargeError) as error:
                return with_number(number, error)
        raise AssertionError("a kernel refused what Python accepts")


def _columns(messages: Sequence[Message]) -> _Columns | None:
    """Return what :meth:`GatheredMessages.columns` does, of any messages."""
    # No container for each message: they would have the garbage collector look at all objects. And
    # no ``attrgetter``, which takes twice the time of an attribute in the code.
    unique_keys, flags = [one.unique_key for one in messages], [one.flag for one in messages]
    born = [one.born_timestamp_ms for one in messages]
    if any(unique_keys) or any(flags) or born.count(None) < len(born):
        return None
    bodies, properties = [one.body for one in messages], [one.properties for one in messages]
    return bodies, [one.tags for one in messages], [one.keys for one in messages], properties


class EncodedLists:
    """Messages with their properties encoded: what the batches of some of them are made from."""

    def __init__(
        self,
        form: RecordForm,
        bodies: Sequence[bytes],
        rows: npt.NDArray[np.int64],
        tails: _Bytes,
        keys: _Bytes,
    ) -> None:
        """Take *rows* int64[n, COLUMN_COUNT], and the tails and the keys, back to back.

        There may be more room behind the keys.
        """
        self._form, self._bodies, self._rows, self._tails = form, bodies, rows, tails
        self._keys = keys[: int(rows[:, KEYS_SIZE].sum())] if len(keys) else keys
        self._found_bounds: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        """Return the bytes of the body and the properties of each of those messages."""
        rows = self._rows[_index(numbers)]
        sizes: list[int] = (rows[:, BODY_SIZE] + rows[:, TAIL_SIZE]).tolist()
        return sizes

    def pack(self, numbers: Sequence[int], first_id: int, now_ms: int) -> RowsPacking:
        """Return the batch of those messages, numbered from *first_id* on and born *now_ms*.

        Their *numbers* ascend, so as many as there are messages are all of them.
        """
        form = self._form
        if len(numbers) == len(self._rows):
            rows, bodies, tails, keys = self._rows.copy(), self._bodies, self._tails, self._keys
        else:
            rows, bodies, tails, keys = self._some(numbers)
        rows[:, BORN_MS] = now_ms
        if form.compression is not None:
            bodies = compress_rows(form.compression, bodies, rows)
        ready = form, rows, bodies, tails, keys.tobytes()
        return RowsPacking(*ready, first_id=first_id, numbered=len(rows))

    def _some(
        self, numbers: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], Sequence[bytes], _Bytes, _Bytes]:
        """Return the rows, bodies, tails and keys of those messages."""
        at, bounds = _index(numbers), self._bounds()
        if isinstance(at, slice):
            (tail, key), (tail_end, key_end) = bounds[[at.start, at.stop]].tolist()
            bodies, tails, keys = (
                self._bodies[at],
                self._tails[tail:tail_end],
                self._keys[key:key_end],
            )
        else:
            bodies = [self._bodies[number] for number in at]
            tails, keys = (
                _joined(part, bounds[at, column], bounds[:, column][1:][at])
                for column, part in enumerate((self._tails, self._keys))
            )
        return self._rows[at].copy(), bodies, tails, keys

    def _bounds(self) -> npt.NDArray[np.int64]:
        """Return where the tail and the keys of each message begin, and last where they end."""
        if self._found_bounds is None:
            sizes = self._rows[:, [TAIL_SIZE, KEYS_SIZE]]
            self._found_bounds = np.zeros((len(sizes) + 1, 2), np.int64)
            np.cumsum(sizes, axis=0, out=self._found_bounds[1:])
        return self._found_bounds


def _joined(part: _Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> _Bytes:
    """Return the spans of *part* back to back."""
    # Slices of bytes are ten times as fast as those of an array.
    data, spans = part.tobytes(), zip(starts.tolist(), ends.tolist(), strict=True)
    return np.frombuffer(b"".join([data[start:end] for start, end in spans]), np.uint8)


def _index(numbers: Sequence[int]) -> slice | list[int]:
    """Return the index of those messages: a slice, if they follow each other."""
    is_whole = isinstance(numbers, range) and numbers.step == 1
    return slice(numbers[0], numbers[-1] + 1) if is_whole else [*numbers]


def plain_bodies(bodies: Sequence[Any]) -> bool:
    """Return whether all bodies are ``bytes`` within the limit, so that none is looked at alone."""
    return {*map(type, bodies)} == {bytes} and max(map(len, bodies)) <= BODY_MAX_BYTES


def with_number(number: int, error: InvalidMessageError | MessageTooLargeError) -> StreamError:
    if isinstance(error, MessageTooLargeError):
        return MessageTooLargeError(f"message {number}: {error.what}", error.size, error.limit)
    return InvalidMessageError(f"message {number}: {error}")
