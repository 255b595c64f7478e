"""Messages as commands print them: as JSON, in a format, or as a line for people.

The JSON has topic, queueId, queueOffset, commitLogOffset, tags, keys, properties, body,
storeTimestamp and offsetMsgId. ``tags`` and ``keys`` are the stored texts, null where there are
none; ``properties`` has every property, including those two; ``body`` is base64; times are
milliseconds. What is read is in views/outgoing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from rocketray.cli.terminal.output import emit, print_bytes, print_json, print_line, progress
from rocketray.message import StoredMessage
from rocketray.store.formats.sys_flag import sys_flag_names
from rocketray.views.message_records import printable, to_json

if TYPE_CHECKING:
    from .message_format import MessageFormat

_SHOWN_BODY_CHARS = 200


def one_line(message: StoredMessage) -> str:
    """Return *message* for people: its place, tag, keys, any flags, and the start of its body."""
    # A character has four bytes at most in UTF-8: the rest of a large body is not decoded.
    body = message.body[: 4 * _SHOWN_BODY_CHARS].decode("utf-8", "replace")[:_SHOWN_BODY_CHARS]
    shown = printable(body)
    place = f"{message.topic}/{message.queue_id}@{message.queue_offset}"
    flags = sys_flag_names(message.sys_flag)
    parts = (place, message.tags or "-", " ".join(message.keys) or "-", *flags, shown)
    return "  ".join(parts)


def message_printer(
    output_format: MessageFormat | None, *, as_json: bool
) -> Callable[[StoredMessage], None]:
    """Return what prints a message: as JSON, in a format, or as a line for people."""
    if output_format is not None:
        if as_json:
            raise typer.BadParameter("--json and --format exclude each other")
        return lambda message: print_bytes(output_format.of(message))
    if as_json:
        return lambda message: print_json(to_json(message))
    return lambda message: print_line(one_line(message))


def print_found(messages: Sequence[StoredMessage], *, as_json: bool) -> None:
    """Print the messages that were found; raises ``Exit`` with code 1 for none, as grep."""
    emit(map(to_json, messages), map(one_line, messages), as_json=as_json)
    if not messages:
        progress("no such message")
        raise typer.Exit(1)
