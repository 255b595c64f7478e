"""Messages that a program gives as columns: ``send_many(topic, bodies=[…], tags=…, …)``.

The bodies, and of tag, keys and each property a text for all messages or a list with one for each.
A column is checked as a whole. If it is invalid, the messages are made one by one: the first that
is refused says why, with its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rocketray.base.message_parts import UNLIKE_OTHERS
from rocketray.base.quantity import counted
from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import (
    KEYS,
    SHARDING_KEY,
    TAGS,
    Message,
    check_keys,
    check_properties,
    check_tag,
)
from rocketray.store.batches.message_lists import (
    MessageLists,
    TextColumn,
    plain_bodies,
    with_number,
)

Texts: TypeAlias = str | Sequence[str | None]
"""A text for all messages, or one for each."""
Keys: TypeAlias = str | Sequence[str | Sequence[str] | None]
"""A key for all messages, or for each its key or its keys."""


@dataclass(frozen=True, slots=True)
class GivenLists:
    """Columns of messages of one topic; each is as long as the bodies are."""

    topic: str
    bodies: Sequence[bytes]
    tags: Texts | None
    keys: Keys | None
    properties: Mapping[str, Texts]

    def __post_init__(self) -> None:
        bodies: Any = self.bodies
        if not isinstance(bodies, Sequence) or isinstance(bodies, str | bytes):
            raise InvalidMessageError(f"bodies is {bodies!r:.60}; give a list of bytes")
        for number, body in enumerate(() if plain_bodies(bodies) else bodies):
            if not isinstance(body, bytes | bytearray | memoryview):
                raise InvalidMessageError(f"body {number} is {body!r:.60}; give bytes")
        self._check_length("tags", self.tags)
        self._check_length("keys", self.keys)
        alike: Any = self.properties
        if isinstance(alike, Mapping):
            for name, texts in alike.items():
                self._check_length(f"property {name!r}", texts)
            alike = {name: one if isinstance(one, str) else "each" for name, one in alike.items()}
        check_properties(alike, self.topic)

    def _check_length(self, what: str, texts: Any) -> None:
        if texts is None or isinstance(texts, str):
            return
        if not isinstance(texts, Sequence) or isinstance(texts, bytes):
            raise InvalidMessageError(
                f"{what} is {texts!r:.60}; give a string for all messages, or a list with one for "
                "each"
            )
        if len(texts) != len(self.bodies):
            raise InvalidMessageError(
                f"{what} has {counted(len(texts), 'entry')} for {counted(len(self.bodies), 'body')}; "
                "give a string for all messages, or a list with one for each"
            )

    def sharding_keys(self) -> Texts | None:
        """Return the sharding key of all messages, or of each, if they have any."""
        return self.properties.get(SHARDING_KEY)

    def columns(self) -> MessageLists | None:
        """Return valid columns; None if one is invalid, or cannot be a column."""
        if not UNLIKE_OTHERS.isdisjoint(self.properties) or not plain_bodies(self.bodies):
            return None
        columns = [] if self.keys is None else [_keys_column(self.keys)]
        if self.tags is not None:
            columns.append(_tags_column(self.tags))
        columns += [_column(name, texts) for name, texts in self.properties.items()]
        found = [column for column in columns if column is not None]
        return MessageLists(self.topic, self.bodies, found) if len(found) == len(columns) else None

    def messages(self) -> list[Message]:
        """Return the messages one by one.

        Raises:
            InvalidMessageError, MessageTooLargeError: one is invalid; the error has its number.
        """
        made = []
        for number, body in enumerate(self.bodies):
            keys = _entry(self.keys, number)
            pairs = ((name, _entry(texts, number)) for name, texts in self.properties.items())
            properties = {name: text for name, text in pairs if text is not None}
            try:
                tags = _entry(self.tags, number)
                made.append(
                    Message(self.topic, body, tags, () if keys is None else keys, properties)
                )
            except (InvalidMessageError, MessageTooLargeError) as error:
                raise with_number(number, error) from None
        return made


def _entry(texts: Any, number: int) -> Any:
    return texts if texts is None or isinstance(texts, str) else texts[number]


def _column(name: str, texts: Any) -> TextColumn | None:
    if isinstance(texts, str):
        one = TextColumn.of(name, [texts])
        return None if one is None else one._replace(is_alike=True)
    return TextColumn.of(name, texts)


def _tags_column(tags: Texts) -> TextColumn | None:
    try:
        for tag in {tags} if isinstance(tags, str) else {*tags}:
            if tag is not None:
                check_tag(tag)
    except (InvalidMessageError, TypeError):  # the second for what cannot be in a set
        return None
    return _column(TAGS, tags)


def _keys_column(keys: Keys) -> TextColumn | None:
    column = _column(KEYS, keys)  # most have one key
    if column is not None:
        # A key with a space would be stored as two: one by one, the messages say which has it.
        return None if " " in column.joined else column
    try:
        return _column(KEYS, [_joined(entry) for entry in keys])
    except InvalidMessageError:
        return None


def _joined(keys: str | Sequence[str] | None) -> str | None:
    """Return the keys of one message as they are stored."""
    return None if keys is None else " ".join(check_keys(keys)) or None
