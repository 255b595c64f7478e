"""Encoders from values to bodies, and from keys to theirs: chosen once for each class of them.

As Faust's ``Topic.prepare_value`` and ``prepare_key``, which choose for each message: the codec of
a Record, else the topic's, else the app's. JSON is written by exact_json.py, bytes are
left alone; every other codec is called as Faust calls it. A schema or a topic class with steps of
its own has no encoders, because such a step may add headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import faust
from faust.models.base import Model
from faust.serializers import codecs
from faust.serializers.registry import Registry
from faust.serializers.schemas import Schema

from .exact_json import dumps, is_codec

Encoder = Callable[[Any], Any]
_STEPS = ("prepare_headers", "prepare_key", "prepare_value")


class Encoders(dict[type, Encoder]):
    """The encoder for each class of values, or of keys; chosen when the first of them is sent."""

    def __init__(self, fallback: Encoder, *defaults: Any) -> None:
        """Take Faust's way for all values, and the codecs for those without one of their own."""
        super().__init__()
        self._fallback = fallback
        self._defaults = defaults

    def __missing__(self, kind: type) -> Encoder:
        self[kind] = found = self._choose(kind)
        return found

    def _choose(self, kind: type) -> Encoder:
        model: Any = kind if issubclass(kind, Model) else None
        own = (model._options.serializer,) if model else ()  # noqa: SLF001  # contract-tested
        codec = next(filter(None, (*own, *self._defaults)), None)
        if issubclass(kind, bytes):
            return _as_it_is
        if codec == "raw" and kind is str and type(codecs.get_codec(codec)) is codecs.raw:
            return str.encode
        if codec == "json" and is_codec(codecs.get_codec(codec)):
            if model is None:
                return dumps
            if model.dumps is Model.dumps:
                return _record_body
        return self._fallback


class TopicEncoders(NamedTuple):
    """The encoders of one topic."""

    values: Encoders
    keys: Encoders


def make_encoders(app: Any, topic: Any) -> TopicEncoders | None:
    """Return the encoders of *topic*; None if its schema or its class has steps of its own."""
    schema, registry, kind = topic.schema, app.serializers, type(topic)
    is_own = any(getattr(kind, step) is not getattr(faust.Topic, step) for step in _STEPS)
    is_own = is_own or type(schema) is not Schema
    if is_own or any(
        getattr(type(registry), name) is not getattr(Registry, name)
        for name in ("dumps_key", "dumps_value")
    ):
        return None

    def value(given: Any) -> Any:
        return registry.dumps_value(schema.value_type, given, serializer=schema.value_serializer)

    def key(given: Any) -> Any:
        return registry.dumps_key(schema.key_type, given, serializer=schema.key_serializer)

    return TopicEncoders(
        Encoders(value, schema.value_serializer, registry.value_serializer),
        # Faust writes a key without a codec as it is, so a text as its bytes.
        Encoders(key, schema.key_serializer, registry.key_serializer, "raw"),
    )


def _as_it_is(given: bytes) -> bytes:
    return given


def _record_body(record: Any) -> bytes:
    return dumps(record.to_representation())
