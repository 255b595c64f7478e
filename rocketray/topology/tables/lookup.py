"""Values of a table for programs that are not its app, whether that runs or not.

The last change of a key in its changelog is its value: what the app has committed. The key index of
the shards finds it: that has every message that the log still has, after a compaction, too. The
changelog is read, as for the recovery of a part, where the index cannot tell: for keys that it does
not have; if damage was found on the way to the key; and if keys may be pairs, as those of windows
and of members of sets, which are found by the key in them.

What kind of table it is, only its app knows. Here the keys in the changelog tell it:

    "k"                          a value of "k"
    ["k",[0.0,59.9]]             that of one of its windows
    ["k","m"]                    a member of its set, where no body of the changelog is other than 1
    [["k",[0.0,59.9]],"m"]       the same, of the set of a window
    [1,"k"]                      how a stock Faust app changed its set, whose members are not there
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError, StoreError
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.topology.values.wire import key_of

from .key_form import changed_key, key_form

_MEMBER = b"1"  # the body of each member of a set (collections.py)
_STOCK_OPERATIONS = (1, 2, 15)  # Faust's OPERATION_ADD, _DISCARD and _UPDATE
_NO_MEMBER = object()

Window = tuple[float, float]
"""The first and the last moment of a window, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class TableValue:
    """What a table has for a key: a value, that of a window, or a set.

    ``key`` and ``value`` are bytes of the changelog; a set is a JSON array of its members, in the
    order in which they were added. ``change`` is the newest message that it was made of. Its born
    time is that of the change, also after compaction stored it again. Each queue has a part of the
    table: a key whose messages are in several queues has a value in each.
    """

    key: bytes
    window: Window | None
    value: bytes
    change: StoredMessage


def keys_meant(text: str) -> list[bytes]:
    """Return the keys that may be meant by *text*, as a changelog has them.

    A table writes its keys as JSON: *text* is one, and so may be what it is as JSON: ``7`` is a
    text and a number. Keys of bytes, and those of another serializer, are *text* itself.
    """
    itself = text.encode(errors="surrogateescape")
    keys = [itself]
    with suppress(TypeError):  # an argument that is no text
        keys.insert(0, orjson.dumps(text))
    with suppress(ValueError):
        keys.append(orjson.dumps(orjson.loads(itself)))
    return [*dict.fromkeys(keys)]


def values_of(node: NodeClient, changelog: TopicConfig, keys: Sequence[bytes]) -> list[TableValue]:
    """Return the values of *keys*, those of the newest window or change first; [] if none has one.

    For any thread without an event loop.

    Raises:
        StoreError: the changelog is damaged, and that may hide a value. ConfigError: it has none of
            the values. ShardUnavailableError: a queue does not answer.
    """
    reading = _Reading(keys)
    changes = _indexed(node, changelog, keys)
    if changes is None:
        changes = reading.read(node, changelog)
    values = [*_values((reading.part_of(changed_key(each)), each) for each in changes)]
    if not values and reading.may_be_stock:
        raise ConfigError(
            f"{changelog.name} may be of a stock Faust app with sets: it has what was done to the "
            "key, and not what the set has; ask the app"
        )
    values.sort(key=lambda each: each.change.born_timestamp_ms, reverse=True)
    return sorted(values, key=lambda each: each.window or (), reverse=True)


class _Part(NamedTuple):
    """What a key of the changelog is for a key that was asked for."""

    key: bytes
    window: Window | None = None
    member: Any = _NO_MEMBER


class _Reading:
    """The changes of some keys, of their windows and of the members of their sets."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {*keys}
        in_pairs = [key for key in self._keys if _loaded(key) is not None]
        # How a key begins that has one of these in it, alone or with a window.
        self._begins = {b"[%b," % key: key for key in in_pairs}
        self._windowed = {b"[[%b," % key: key for key in in_pairs}
        self._stock = {b"[%d,%b]" % (done, key) for key in in_pairs for done in _STOCK_OPERATIONS}
        self._last: dict[bytes, StoredMessage] = {}
        self._is_of_sets = True
        self._has_stock_keys = False

    @property
    def may_be_stock(self) -> bool:
        """Whether a stock Faust app may have changed sets of these keys."""
        return self._has_stock_keys and not self._is_of_sets

    def read(self, node: NodeClient, changelog: TopicConfig) -> list[StoredMessage]:
        """Return the last change of each key in each queue."""
        # They import NumPy, for which a look-up in the index would have to wait.
        from rocketray.messaging.api.tails import tail_of  # noqa: PLC0415

        from .part_reader import PartReader  # noqa: PLC0415

        found: list[StoredMessage] = []
        for queue_id in range(changelog.queues):
            self._last = {}
            name, tail = f"{changelog.name}/{queue_id}", tail_of(node, changelog.name, queue_id)
            reader = PartReader(name, tail, apply=self._note, drop=self._last.clear)
            try:
                asyncio.run(reader.recover())
            finally:
                reader.close()
            found += self._last.values()
        return found

    async def _note(self, changes: Sequence[StoredMessage]) -> None:
        begins = *self._begins, *self._windowed
        for change in changes:
            if not _is_change(change):
                continue
            key = changed_key(change)
            if key in self._keys or key.startswith(begins):
                self._last[key] = change
            self._is_of_sets &= change.body in (b"", _MEMBER)
            self._has_stock_keys |= key in self._stock

    def part_of(self, key: bytes) -> _Part | None:
        """Return what a *key* of the changelog is; None if it is none of those asked for."""
        if key in self._keys:
            return _Part(key)
        match _loaded(key):
            case [[_, window], member] if (asked := _begin_in(self._windowed, key)) is not None:
                if self._is_of_sets and _is_window(window):
                    return _Part(asked, tuple(window), member)
            case [_, window] if (asked := _begin_in(self._begins, key)) is not None:
                # Of whole numbers it may be a sliding window, or a member of a set.
                if _is_window(window, of=float if self._is_of_sets else (int, float)):
                    return _Part(asked, tuple(window))
                if self._is_of_sets:
                    return _Part(asked, None, window)
        return None


def _indexed(
    node: NodeClient, changelog: TopicConfig, keys: Iterable[bytes]
) -> list[StoredMessage] | None:
    """Return the last change of each key in each queue; None if the index does not tell."""
    found: list[StoredMessage] = []
    for key in keys:
        text, properties = key_form(key)
        # Messages have no empty business key, and those of stock apps none of bytes.
        if not text or properties:
            return None
        for queue_id in range(changelog.queues):
            try:
                last = node.messages.query(changelog.name, text, 1, queues=[queue_id], strict=True)
            except StoreError:
                return None
            if not all(_is_change(each) and changed_key(each) == key for each in last):
                return None  # the index takes keys for one that differ in the kind of their blanks
            found += last
    return found if found or _is_without_pairs(node, changelog) else None


def _is_without_pairs(node: NodeClient, changelog: TopicConfig) -> bool:
    """Return whether the last change of each queue says so: the keys of a table have one form."""
    for shard in node.shard_statistics(changelog.name):
        if shard.max_queue_offset > shard.min_queue_offset:
            last = node.messages.at(changelog.name, shard.queue_id, shard.max_queue_offset - 1)
            if last is None or not _is_change(last) or isinstance(_loaded(changed_key(last)), list):
                return False
    return True


def _is_change(message: StoredMessage) -> bool:
    """Return whether it is no record of an owner, and no message of another program."""
    return key_of(message.properties) is not None


def _values(parts: Iterable[tuple[_Part | None, StoredMessage]]) -> Iterator[TableValue]:
    sets: dict[tuple[bytes, Window | None, int], list[tuple[Any, StoredMessage]]] = {}
    for part, change in parts:
        if part is None or not change.body:
            continue
        if part.member is _NO_MEMBER:
            yield TableValue(part.key, part.window, change.body, change)
        else:
            of_set = sets.setdefault((part.key, part.window, change.queue_id), [])
            of_set.append((part.member, change))
    for (key, window, _), members in sets.items():
        members.sort(key=lambda each: each[1].queue_offset)
        value = json.dumps([member for member, _ in members], ensure_ascii=False)
        yield TableValue(key, window, value.encode(errors="surrogatepass"), members[-1][1])


def _begin_in(begins: Mapping[bytes, bytes], key: bytes) -> bytes | None:
    return next((asked for begin, asked in begins.items() if key.startswith(begin)), None)


def _is_window(value: Any, of: Any = float) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(isinstance(each, of) for each in value) and value[0] <= value[1]


def _loaded(key: bytes) -> Any:
    """Return a key of JSON; None for any other, as no key is null."""
    try:
        return json.loads(key)
    except (ValueError, RecursionError):
        return None
