"""What a message leads to: the command that sends it again, and its trace.

The command is for a POSIX shell. A message of printable text is written as arguments. Any other is
written as JSON in ASCII, so that a terminal into which the command is pasted gets no control
characters of a message. The unique key is left out, because each send makes one, and so are the
queue and what the node noted (base/marks.py).

The trace is found from the W3C context in the properties, without OpenTelemetry, which is an extra.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from rocketray.base.marks import FAUST_KEY
from rocketray.errors import ConfigError
from rocketray.message import SHARDING_KEY, StoredMessage

TRACE_ID = "{trace_id}"
"""What a template of addresses has in place of the id."""
# W3C's traceparent: version, trace, parent, flags. Version ff and ids of zeros only are invalid.
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_COMMAND_MAX_BYTES = 100 * 1024  # Linux allows 128 KiB an argument


@dataclass(frozen=True, slots=True)
class SendAgain:
    """A command, and the form in which it has the message.

    ``arguments`` is text. ``json`` is a line of JSON, for text that is not printable. ``base64`` is
    the same for a body that is not text. ``query`` reads a message that is too large for a command
    line from the node, with its unique key.
    """

    form: Literal["arguments", "json", "base64", "query"]
    command: str


def send_again(message: StoredMessage) -> SendAgain:
    found = _with_message(message)
    if len(found.command.encode()) <= _COMMAND_MAX_BYTES:
        return found
    read = shlex.join(["rocketray", "query", "--json", "--id", message.offset_message_id])
    return SendAgain("query", f"{read} {_last(message.topic)} | {_send_lines(message.topic)}")


def trace_id_of(properties: Mapping[str, str]) -> str | None:
    """Return the id, 32 hexadecimal digits; None without a context, or if it is invalid."""
    text = properties.get("traceparent", "").strip()
    match = _PARENT.match(text)
    # Version 00 ends there; a later one may have more, behind a hyphen.
    if match is None or (
        len(text) > match.end() and (text[:2] == "00" or text[match.end()] != "-")
    ):
        return None
    return match[1]


def check_trace_url(template: str) -> str:
    """Return a template such as ``https://jaeger/trace/{trace_id}``.

    Raises:
        ConfigError: it is no address, or has no place for the id.
    """
    address = urlsplit(template)
    if address.scheme not in ("http", "https") or not address.netloc or TRACE_ID not in template:
        raise ConfigError(
            f"the address of traces is {template[:80]!r}; give one with {TRACE_ID} in it, such as "
            f"http://localhost:16686/trace/{TRACE_ID}"
        )
    return template


def _with_message(message: StoredMessage) -> SendAgain:
    properties, sharding_key = message.user_properties, message.properties.get(SHARDING_KEY)
    if FAUST_KEY in message.properties:  # the form of that key, which is sent, too
        properties[FAUST_KEY] = message.properties[FAUST_KEY]
    fields = {
        "tags": message.tags,
        "keys": message.keys,
        "properties": properties,
        "shardingKey": sharding_key,
    }
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        encoded = base64.b64encode(message.body).decode()
        return SendAgain("base64", _as_json(message.topic, {**fields, "body": encoded}))
    texts = (body, message.tags or "", *message.keys, sharding_key or "", *properties.values())
    is_plain = all(map(str.isprintable, (*texts, *properties)))
    # ``--property`` divides name and value at the first "=".
    if not is_plain or any("=" in name for name in properties):
        return SendAgain("json", _as_json(message.topic, {**fields, "text": body}))
    options = [] if message.tags is None else [f"--tags={message.tags}"]
    options += [f"--key={key}" for key in message.keys]
    options += [f"--property={name}={value}" for name, value in properties.items()]
    options += [] if sharding_key is None else [f"--sharding-key={sharding_key}"]
    command = shlex.join(["rocketray", "send", *options])
    return SendAgain("arguments", f"{command} {_last(message.topic, body)}")


def _as_json(topic: str, fields: dict[str, Any]) -> str:
    line = json.dumps({k: v for k, v in fields.items() if v or k == "text"})
    return f"printf '%s\\n' {shlex.quote(line)} | {_send_lines(topic)}"


def _send_lines(topic: str) -> str:
    return f"rocketray send --jsonl {_last(topic)}"


def _last(*words: str) -> str:
    """Return the words that are no options, behind -- if one looks like an option."""
    looks_so = any(word.startswith("-") for word in words)
    return shlex.join(["--", *words] if looks_so else words)
