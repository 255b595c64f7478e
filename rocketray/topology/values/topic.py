"""Topics of an app: Faust's description of values, and the fields that filters read.

Sending builds a rocketray message: the value becomes the body, the key the sharding key and a
business key, headers become properties, and declared fields fill in the rest. An explicit argument
overrides a field. All checks run before the message is queued for sending, so
``await topic.send(...)`` raises at the call, and no message is sent in part.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack

import faust
from faust.types.tuples import RecordMetadata
from mode.utils.queues import ThrowableQueue

from rocketray.base.delay import DelayOptions, delay_of
from rocketray.base.marks import KEYS, OF_THE_KEY, SHARDING_KEY, TAGS, taken_on
from rocketray.base.names import check_topic
from rocketray.base.property_text import property_text
from rocketray.errors import ConfigError, InvalidMessageError, TopicNotFoundError
from rocketray.message import Message, check_keys, stored_key
from rocketray.messaging.producers.queue_selector import QueueSelector, select_queue
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .codec import make_decoder, refuse_pickle
from .encoding import TopicEncoders, make_encoders
from .fields import MessageFields, texts
from .group import GroupMembership
from .typed_fields import can_be_read
from .wire import EMPTY_KEY, born_ms, check_encoding, topic_name

if TYPE_CHECKING:
    import typing_extensions

    Value = typing_extensions.TypeVar("Value", default=Any)
else:
    Value = TypeVar("Value")
"""The type of a topic's values: its ``value_type``, or any without one."""


class Topic(faust.Topic, Generic[Value]):  # type: ignore[misc]  # Faust's types are not followed
    """A named topic, or several read as one; ``Topic[Order]`` has the ``value_type`` Order."""

    def __init__(
        self,
        app: Any,
        *,
        fields: MessageFields | None = None,
        membership: GroupMembership | None = None,
        **options: Any,
    ) -> None:
        self.fields = fields or MessageFields()
        self.membership = membership
        self._deliveries: Any = None
        self.isolation: Any = None
        """Divides the deliveries among handlers of single queues; None: handlers share a queue."""
        _use_raw_for_text(options)
        if options.get("has_prefix") or options.get("internal"):  # made by Faust, or by an agent
            # Faust builds these names with dots, which RocketMQ's names cannot have.
            options["topics"] = [topic_name(name) for name in options.get("topics") or ()]
        # Before Faust's constructor, which takes wrong options without an error, or fails inside.
        _check(options, self.fields)
        super().__init__(app, **options)

    @property
    def subscribes_to(self) -> list[str]:
        """The names, or the pattern, on which the members of a group have to agree."""
        return list(self.topics) or [str(self)]

    def reads(self, name: str) -> bool:
        """Return whether a stream over this topic gets messages of topic *name*."""
        if self.pattern is None:
            return name in self.topics
        return self.pattern.fullmatch(name) is not None

    def matching(self, existing: Mapping[str, Any]) -> list[str]:
        """Return the topics this one reads: those it names, or the *existing* ones that match.

        The whole name has to match. Internal topics do not count: the node's own, and those of
        tables and replies.
        """
        if self.pattern is None:
            return list(self.topics)
        return sorted(
            name for name, topic in existing.items() if not topic.internal and self.reads(name)
        )

    @property
    def queue(self) -> Any:
        """The queue of deliveries that a stream iterates.

        Faust empties its queues when it resumes or suspends the flow of an app. Ours keeps its
        content, because the ledger requires that every delivery is delivered or withdrawn.
        """
        if self.isolation is not None:
            return self.isolation
        if self._deliveries is None:
            # Without a limit of its own: the feed's window (flow.py) bounds what is in it.
            self._deliveries = ThrowableQueue(maxsize=0, flow_control=self.app.flow_control)
        return self._deliveries

    async def send(
        self,
        *,
        key: Any = None,
        value: Value | bytes | None = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Any = None,
        schema: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        callback: Callable[[Any], Any] | None = None,
        force: bool = False,  # noqa: ARG002  # of Faust's interface: sends are never held back
        tags: str | None = None,
        keys: Sequence[str] | str = (),
        properties: Mapping[str, object] | None = None,
        queue_selector: QueueSelector | None = None,
        **delay: Unpack[DelayOptions],
    ) -> Awaitable[StoredMetadata]:
        """Queue one message for the next batch; awaiting the result waits until it is stored.

        *key* shards: messages with one key keep their order. *partition* names a queue, and
        *queue_selector* chooses one by the number of queues and the message, whatever its key. The
        result is Faust's ``RecordMetadata`` with the queue and the queue offset. With
        ``delay_level=``, ``delay=`` or ``deliver_at=`` the message is delivered later
        (:class:`Delay`), and the result has a ``recall_handle``.

        On a topic with a ``value_type``, *value* is one of that type, bytes that are serialized
        already, or a value that the topic's own serialization makes one of, such as a dict.

        Raises:
            InvalidMessageError: no consumer could decode *value*, or the message is invalid.
        """
        later = delay_of(self.send, delay) if delay else None
        is_given = not (value_serializer is None and key_serializer is None and schema is None)
        encoders = None if is_given else self._encoders
        try:
            open_headers = None if headers is None else self.prepare_headers(headers)
            if encoders is not None:
                body = encoders.values[value.__class__](value)
            else:  # Faust's own steps; each may add headers
                open_headers = {} if open_headers is None else open_headers
                body, open_headers = self.prepare_value(
                    value, value_serializer, schema, open_headers
                )
        except Exception as error:
            raise self._not_serialized("value", value, error) from error
        if body is None:
            raise InvalidMessageError(
                f"topic {self}: None has no form in a topic of raw values, where a consumer would "
                "get an empty one; send b''"
            )
        # With a serializer of its own, the call decides about the body, not the topic.
        if value_serializer is None and schema is None:
            self._check_value(value, body)
        try:
            if encoders is None:
                key_bytes, open_headers = self.prepare_key(
                    key, key_serializer, schema, open_headers
                )
            else:
                key_bytes = None if key is None else encoders.keys[key.__class__](key)
        except Exception as error:
            raise self._not_serialized("key", key, error) from error
        message = self.message(
            body,
            value,
            key=key_bytes,
            headers=announce(self.app, key_bytes, body, partition, timestamp, open_headers),
            timestamp=timestamp,
            tags=tags,
            keys=keys,
            properties=properties,
        )
        if queue_selector is not None:
            partition = await self._select(queue_selector, message, partition)
        future: Awaitable[StoredMetadata] = await self.app.send_message(
            message, partition, self.partitions, self.retention, later
        )
        if callback is not None:
            _on_stored(future, callback)
        return future

    def message(
        self,
        body: bytes,
        value: Any,
        *,
        key: bytes | None = None,
        headers: Any = None,
        timestamp: float | None = None,
        tags: str | None = None,
        keys: Sequence[str] | str = (),
        properties: Mapping[str, object] | None = None,
    ) -> Message:
        """Return the message that a send with these arguments stores; raise if it is invalid.

        Headers may be those of another event, as with ``forward``: its tag and keys are used unless
        an argument or a field gives them, and what the node noted about it is left behind.
        """
        fields, sharding_key = self.fields, None
        try:
            found, tag, all_keys = _carried(headers) if headers else ({}, None, ())
            if tags or fields.tag:
                tag = tags or fields.tag_of(value) or tag
            if keys or fields.keys:
                all_keys = check_keys(keys or fields.keys_of(value)) or all_keys
            if fields.properties:
                found |= fields.properties_of(value)
            if properties:
                found |= texts("property", properties)
            if key is not None:
                sharding_key = property_text("the key", key)
                found |= _key_properties(sharding_key)
            if sharding_key or all_keys:
                all_keys = _merge_keys(sharding_key, all_keys)
            born = None if timestamp is None else born_ms(timestamp)
            topic = self.get_topic_name()
            message = Message(topic, body, tag, all_keys, found, born_timestamp_ms=born)
        except InvalidMessageError as error:
            raise InvalidMessageError(f"topic {self}: {error}") from error
        if tag or all_keys or found:
            check_encoding(message)  # now, not in the middle of a batch
        return message

    @cached_property
    def _encoders(self) -> TopicEncoders | None:
        """The encoders of values and keys; chosen when the first message is sent."""
        return make_encoders(self.app, self)

    def _not_serialized(self, what: str, given: Any, error: Exception) -> InvalidMessageError:
        """Return the error of a codec that refused *given*, with the topic; JSON's say the rest."""
        if isinstance(error, InvalidMessageError):
            return InvalidMessageError(f"topic {self}: {what}: {error}")
        return InvalidMessageError(
            f"topic {self}: {what} {given!r:.60} cannot be serialized: {error}; send one that its "
            "serializer takes"
        )

    def _check_value(self, value: Any, body: Any) -> None:
        """Raise if *value* is of another type, and its *body* cannot be decoded as the topic's."""
        value_type = self.schema.value_type
        if value.__class__ is bytes or value.__class__ is value_type:
            return
        if not isinstance(value_type, type) or isinstance(value, (bytes, value_type)):
            return
        decode = make_decoder(self.app, self)
        if decode is None or not isinstance(body, bytes):
            return
        try:
            decode(body)
        except Exception as error:
            raise InvalidMessageError(
                f"topic {self}: value {value!r:.60} cannot be decoded as value_type "
                f"{value_type.__name__}: {error}; send a value of that type, or bytes"
            ) from error

    async def _select(
        self, queue_selector: QueueSelector, message: Message, partition: int | None
    ) -> int:
        """Return the queue chosen for *message*; create the topic if necessary."""
        if partition is not None:
            raise ConfigError(
                "queue_selector= and partition= each choose a message's queue; give one"
            )
        await self.app.declarations.declare(message.topic, self.partitions, self.retention)
        queues = self.app.declarations.queue_count(message.topic)
        if queues is None:
            raise TopicNotFoundError(message.topic)
        return select_queue(queue_selector, queues, message)

    async def put(self, event: Any) -> NoReturn:
        """Refuse: a stream over a topic reads stored messages only."""
        raise ConfigError(
            f"{event!r} cannot be put into topic {self}: send it, or use app.channel() for values "
            "that stay in this process"
        )

    def _clone_args(self) -> Mapping[str, Any]:
        return {**super()._clone_args(), "fields": self.fields, "membership": self.membership}


def announce(  # noqa: PLR0917  # what the signal tells
    app: Any, key: Any, value: Any, partition: int | None, timestamp: float | None, headers: Any
) -> Any:
    """Send ``on_produce_message``, whose receivers may add headers; return all headers."""
    if not is_announced(app):
        return headers
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
    app.on_produce_message.send(
        key=key, value=value, partition=partition, timestamp=timestamp, headers=pairs
    )
    return pairs


def is_announced(app: Any) -> bool:
    """Return whether ``on_produce_message`` of *app* has receivers: its sends are announced."""
    signal = app.on_produce_message
    # Private, but a signal without a receiver costs as much as all checks of a send.
    of_apps = signal._filter_receivers  # noqa: SLF001  # contract-tested
    return bool(signal._receivers or (of_apps and of_apps.get(hash(app))))  # noqa: SLF001  # as above


def retention_policy(retention: Any) -> RetentionPolicy:
    """Return a policy from a policy, Faust's seconds, a timedelta, or None (keep for ever).

    Raises:
        ConfigError: it is none of these, or not above 0.
    """
    if retention is None:
        return KEEP_ALL
    if isinstance(retention, RetentionPolicy):
        return retention
    seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(f"retention is {retention!r:.60}; give a timedelta, or seconds")
    return RetentionPolicy(max_age_ms=int(seconds * 1000))


def _check(options: Mapping[str, Any], fields: MessageFields) -> None:
    """Raise for options that a topic cannot have, before Faust uses them."""
    _check_pattern(options.get("pattern"), options.get("topics"))
    retention_policy(options.get("retention"))
    _check_types(options)
    for name in options.get("topics", ()):
        check_topic(name)
        refuse_pickle(f"the value of topic {name!r}", _codec(options, "value"))
        refuse_pickle(f"the key of topic {name!r}", _codec(options, "key"))
        fields.check(name, options.get("value_type"))


def _check_pattern(pattern: Any, names: Sequence[str] | None) -> None:
    if pattern is None:
        return
    if names:
        raise ConfigError(
            f"a topic has names or a pattern, not both: {', '.join(names)}, {pattern}"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"pattern {pattern!r}: {error}") from error


def _check_types(options: Mapping[str, Any]) -> None:
    """Raise for a key_type or value_type that is an instance, or no class for another reason."""
    names = ", ".join(map(repr, options.get("topics") or ())) or "of a pattern"
    for option in ("key_type", "value_type"):
        declared = options.get(option)
        if declared is None:
            continue
        if isinstance(declared, type):
            if options.get("schema") is None and not can_be_read(declared):
                raise ConfigError(
                    f"topic {names}: {option} is {declared.__name__}, which no consumer could make "
                    "of JSON; give a subclass of rr.Record, or a schema= of your own"
                )
            continue
        instead = "str, int, or a subclass of rr.Record"
        if isinstance(declared, faust.Record):
            instead = f"the class: {option}={type(declared).__name__}"
        raise ConfigError(
            f"topic {names}: {option} is {declared!r:.60} and not a class; give {instead}"
        )


def _codec(options: Mapping[str, Any], what: str) -> Any:
    """Return the codec that *options* choose for keys or values: by name, schema or model."""
    by_schema = getattr(options.get("schema"), f"{what}_serializer", None)
    model = getattr(options.get(f"{what}_type"), "_options", None)
    return options.get(f"{what}_serializer") or by_schema or getattr(model, "serializer", None)


def _on_stored(future: Any, callback: Callable[[Any], Any]) -> None:
    """Call *callback* with the future once its message is stored, as Faust does."""

    def call(done: Any) -> None:
        if not done.cancelled() and done.exception() is None:
            callback(done)

    future.add_done_callback(call)


def _carried(headers: Any) -> tuple[dict[str, str], str | None, Sequence[str]]:
    """Return what a message takes on from *headers*: properties, tag and keys as they are stored.

    Not the sharding key: each send says what its key is.
    """
    found = taken_on(texts("header", headers))
    for name in OF_THE_KEY:
        found.pop(name, None)
    tag, keys = found.pop(TAGS, None), found.pop(KEYS, None)
    return found, tag, () if keys is None else [key for key in keys.split(" ") if key]


def _key_properties(sharding_key: str | None) -> Mapping[str, str]:
    """Return the properties of the key: an empty one is marked, and orders like any other."""
    return EMPTY_KEY if sharding_key is None else {SHARDING_KEY: sharding_key}


def _merge_keys(sharding_key: str | None, keys: Sequence[str]) -> list[str]:
    """Return the business keys as they are stored, each once, and first the sharding key."""
    if sharding_key is None:
        return [*dict.fromkeys(keys)]
    first = stored_key(sharding_key)
    return [*dict.fromkeys((first, *keys))] if keys else [first]


def _use_raw_for_text(options: dict[str, Any]) -> None:
    """Treat ``value_type=bytes`` alone as raw bytes; Faust would decode them as JSON."""
    for what in ("key", "value"):
        if options.get(f"{what}_type") in (bytes, str) and not options.get(f"{what}_serializer"):
            options[f"{what}_serializer"] = "raw"


class StoredMetadata(RecordMetadata):  # type: ignore[misc]  # Faust's types are not followed
    """The position of a stored message and, for a delayed one, its recall handle."""

    recall_handle: str | None = None
