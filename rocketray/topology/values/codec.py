"""Decoders from bodies to values: chosen once per topic, so that a message costs one call.

JSON is read exactly (exact_json.py), raw bytes are not decoded at all; every other codec and type
is Faust's. A body that does not decode fails when its message is due, like a handler that raises:
it is retried, counted, logged with its offset, and finally dead-lettered (failure.py). Pickle is
refused: otherwise any sender to a topic could run code in its consumers.

A tombstone, which is an empty body or null, is None whatever the type of a topic with JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faust
from faust.serializers.codecs import get_codec
from faust.serializers.schemas import Schema
from faust.types.tuples import Message as FaustMessage

from rocketray.errors import ConfigError

from .exact_json import loads
from .record_maker import record_maker

Decoder = Callable[[bytes], Any]


def refuse_pickle(what: str, codec: Any) -> None:
    """Raise :class:`ConfigError` when *codec*, named or composed, unpickles."""
    if codec is None:
        return
    try:
        nodes = getattr(get_codec(codec), "nodes", ())
    except (KeyError, TypeError):
        raise ConfigError(
            f"{what} names the codec {codec!r}, which is not registered; "
            "use json, raw, yaml or binary, or register it with faust.serializers.codecs.register"
        ) from None
    if any("pickle" in type(node).__name__.lower() for node in nodes):
        raise ConfigError(
            f"{what} asks for pickle, with which any sender of a message can run code in the "
            "process that reads it; use json, or register your own codec for other types"
        )


def make_decoder(app: Any, topic: Any) -> Decoder | None:
    """Return the decoder from bodies to values of *topic*; None when the value is the body."""
    schema = topic.schema
    if type(schema) is not Schema:  # a user's own reads messages, not bodies
        return lambda body: schema.loads_value(
            app, FaustMessage("", 0, 0, 0.0, 0, None, None, body, None)
        )
    value_type = schema.value_type
    codec = schema.value_serializer or app.conf.value_serializer
    # With ``bytes`` alone the codec is raw already: see ``_use_raw_for_text`` in topic.py.
    if codec == "raw" and value_type in (None, bytes):
        return None
    if codec == "json":
        if value_type is None:
            return _json_value(app.serializers.Model)
        if isinstance(value_type, type) and issubclass(value_type, faust.Record):
            return _record(record_maker(value_type))
        return _typed(value_type, app.serializers._prepare_payload)  # noqa: SLF001  # contract-tested
    loads_value = app.serializers.loads_value
    return lambda body: loads_value(value_type, body, serializer=codec)


def make_key_reader(app: Any, topic: Any) -> Callable[[Any], Any] | None:
    """Return what decodes the key of an event of *topic*; None when the key is its bytes."""
    schema = topic.schema
    codec = schema.key_serializer or app.conf.key_serializer
    if type(schema) is Schema and codec == "raw" and schema.key_type in (None, bytes):
        return None

    def read(event: Any) -> Any:
        message = event.message
        return None if message.key is None else schema.loads_key(app, message)

    return read


def _record(make: Callable[[Any], Any]) -> Decoder:
    """Return the decoder of a Record type; null, which deletes a key, is None as in Faust."""

    def decode(body: bytes) -> Any:
        data = loads(body)
        return None if data is None else make(data)

    return decode


def _typed(value_type: Any, prepare: Callable[[Any, Any], Any]) -> Decoder:
    """Return the decoder of any other type, such as int; null is None."""

    def decode(body: bytes) -> Any:
        data = loads(body)
        return None if data is None else prepare(value_type, data)

    return decode


def _json_value(model: Any) -> Decoder:
    """Return a JSON decoder; as in Faust, an object that names its model becomes that model."""

    def decode(body: bytes) -> Any:
        value = loads(body)
        # The common case without a call into Faust, which would look for the same mark.
        if type(value) is dict and "__faust" not in value:
            return value
        return model._maybe_reconstruct(value)  # noqa: SLF001  # contract-tested

    return decode
