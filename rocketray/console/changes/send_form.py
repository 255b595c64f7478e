"""A message as the form of a topic's page has it, checked as ``rocketray send`` checks it.

Each field has its own reason if it is refused, so that a form is corrected at once. A form is first
checked, which sends nothing, and the same form is then sent.

Limits: a body of ``BODY_MAX_BYTES``, and other fields of ``EXPRESSION_MAX`` characters.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rocketray.base.ack_mode import AckMode
from rocketray.base.delay import Delay
from rocketray.base.units import parse_delay
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError, InvalidMessageError, StreamError
from rocketray.message import KEYS, TAGS, UNIQUE_KEY, check_keys, check_properties, check_tag
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.views.outgoing import Outgoing, from_json, pairs_of

from .form_fields import EXPRESSION_MAX, number_of

BODY_MAX_BYTES = 32 * 1024
"""Half of what a form may have: the other half is for the other fields, and for its encoding."""
FIELDS = ("body", "tags", "keys", "properties", "queue", "delay")
_RESULTS_MAX = 64  # a result is shown once, when its form was sent
_INSTEAD = {
    TAGS: "give the tag in its own field",
    KEYS: "give keys in their own field",
    UNIQUE_KEY: "each message gets its own",
}
_T = TypeVar("_T")


@dataclass(slots=True)
class SendForm:
    """The fields of a form as ``texts``, and the reasons of those that are ``refused``.

    ``outgoing`` is the message, None if anything is refused; ``ack`` the mode of its topic.
    """

    topic: str
    ack: AckMode
    texts: dict[str, str]
    refused: dict[str, str] = field(default_factory=dict)
    outgoing: Outgoing | None = None

    @classmethod
    def of(cls, config: TopicConfig, fields: Mapping[str, Any]) -> SendForm:
        # A browser sends the ends of lines as CR LF, whatever was typed or pasted.
        texts = {
            name: value.replace("\r\n", "\n")
            if isinstance(value := fields.get(name, ""), str)
            else ""
            for name in FIELDS
        }
        form = cls(config.name, config.default_ack, texts)
        form._read(config, [name for name in FIELDS if not isinstance(fields.get(name, ""), str)])
        return form

    def _read(self, config: TopicConfig, files: list[str]) -> None:
        self.refused |= dict.fromkeys(files, "it is a file; give a text")
        if config.internal:
            self.refused["topic"] = f"topic {config.name} is the node's own: send to it by command"
        elif not config.writable:
            self.refused["topic"] = f"topic {config.name} does not allow sending"
        queue = self._taken("queue", lambda text: _queue(config, text))
        delay_ms = self._taken("delay", _delay_ms)
        value = {
            "text": self._taken("body", _body),
            "tags": self._taken("tags", lambda text: check_tag(text) if text else None),
            "keys": self._taken("keys", lambda text: [*check_keys(text.split())]),
            "properties": self._taken("properties", lambda text: _properties(config.name, text)),
            "queueId": queue,
            "delayMs": delay_ms,
        }
        if self.refused:
            return
        try:
            outgoing = from_json(config.name, value)
            outgoing.message.encoded_properties()
        except StreamError as error:  # all of the properties are too long
            self.refused["properties"] = str(error)
            return
        self.outgoing = outgoing

    def _taken(self, name: str, read: Callable[[str], _T]) -> _T | None:
        """Return what *read* makes of a field; None if that refuses it."""
        text = self.texts[name]
        try:
            if name != "body" and len(text) > EXPRESSION_MAX:
                raise ConfigError(f"it is longer than {EXPRESSION_MAX} characters")
            return read(text)
        except StreamError as error:
            self.refused.setdefault(name, str(error))
            return None

    def audit(self) -> dict[str, Any]:
        """Return what the log of changes has of it: all but the body, which has a hash there."""
        body = self.texts["body"].encode()
        named = {name: self.texts[name] for name in FIELDS if name != "body" and self.texts[name]}
        digest = hashlib.sha256(body).hexdigest()
        return {"topic": self.topic, **named, "bodyBytes": len(body), "bodySha256": digest}

    def send(self, node: NodeClient) -> dict[str, Any]:
        """Send the message; return where it is, and with which ack mode it was acknowledged.

        Raises:
            StreamError: it is not stored; or it is not known whether it is, as the error says then.
        """
        assert self.outgoing is not None, "a form that is refused is not sent"
        message, delay = self.outgoing.message, self.outgoing.delay
        now_ms = node.clock_ms()
        with NodeProducer(node, first_turn=uuid.uuid4().time_low) as producer:
            options = self.outgoing.options
            found = producer.send(self.topic, message.body, ack=self.ack, **options)
        return {
            "topic": self.topic,
            "msgId": found.message_id,
            "offsetMsgId": found.offset_message_id,
            "queueId": found.queue_id,
            "queueOffset": found.queue_offset,
            "ack": self.ack,
            "recallHandle": found.recall_handle,
            "dueMs": None if found.recall_handle is None or delay is None else delay.due_ms(now_ms),
        }


class SentMessages:
    """The results of the last forms, by a number that the address of a page has."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}

    def keep(self, result: dict[str, Any]) -> str:
        number = secrets.token_hex(8)
        self._found[number] = result
        while len(self._found) > _RESULTS_MAX:
            del self._found[next(iter(self._found))]
        return number

    def of(self, number: str) -> dict[str, Any] | None:
        """Return a result, if it is one of the last."""
        return self._found.get(number)


def _body(text: str) -> str:
    size = len(text.encode("utf-8", "replace"))
    if size > BODY_MAX_BYTES:
        raise InvalidMessageError(
            f"it has {size} bytes, and a form {BODY_MAX_BYTES} at most; send it with: rocketray send"
        )
    return text


def _properties(topic: str, text: str) -> dict[str, str]:
    pairs = pairs_of([line for line in text.split("\n") if line.strip()], _INSTEAD)
    check_properties(pairs, topic)
    return pairs


def _queue(config: TopicConfig, text: str) -> int | None:
    queue_id = number_of({"the queue": text}, "the queue", None)
    if queue_id is not None:
        config.check_queue(queue_id)
    return queue_id


def _delay_ms(text: str) -> int | None:
    if not text.strip():
        return None
    delay_ms = parse_delay(text.strip())
    Delay.of(delay=delay_ms / 1000)  # it refuses one that is too long
    return delay_ms
