"""``--format``: what is written of each message, in the tokens of kcat and a few of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.terminal.usage import usage_error

if TYPE_CHECKING:
    from rocketray.message import StoredMessage

_TOKENS: dict[str, Callable[[StoredMessage], bytes]] = {
    "%t": lambda message: message.topic.encode(),
    "%p": lambda message: b"%d" % message.queue_id,
    "%o": lambda message: b"%d" % message.queue_offset,
    "%k": lambda message: _text(" ".join(message.stored_keys)),
    "%g": lambda message: _text(message.tags or ""),
    "%T": lambda message: b"%d" % message.store_timestamp_ms,
    "%s": lambda message: message.body,
    "%S": lambda message: b"%d" % len(message.body),
    "%h": lambda message: _text(
        ",".join(f"{name}={value}" for name, value in message.properties.items())
    ),
    "%i": lambda message: message.offset_message_id.encode(),
    "%u": lambda message: _text(message.unique_key or ""),
}
_ESCAPES = {"%%": b"%", "\\n": b"\n", "\\t": b"\t", "\\r": b"\r", "\\0": b"\0", "\\\\": b"\\"}
_MAX_CHARS = 4096  # it is walked for each message
_HELP = (
    "Write this of each message, and nothing else: %t topic, %p queue, %o offset, %k keys, %g tag, "
    "%T store time in milliseconds, %s body as it is, %S its size, %h properties, %i offset "
    "message id, %u unique key, %%; \\n, \\t, \\r, \\0. Without \\n there is no end of line."
)


def split_format(text: str) -> list[bytes | str]:
    """Return the parts of a format: tokens as text, and the bytes between them.

    Raises:
        ValueError: it is too long, or has an unknown token.
    """
    if len(text) > _MAX_CHARS:
        raise ValueError(f"the format has {len(text)} characters; {_MAX_CHARS} are the most")
    parts: list[bytes | str] = []
    literal, at = b"", 0
    while at < len(text):
        pair = text[at : at + 2]
        if pair in _ESCAPES:
            literal += _ESCAPES[pair]
        elif pair in _TOKENS:
            parts += [literal, pair] if literal else [pair]
            literal = b""
        elif pair[0] in "%\\":
            known = ", ".join((*_TOKENS, *_ESCAPES))
            raise ValueError(f"{pair!r} is no token of a format; these are: {known}")
        else:
            pair = pair[0]
            literal += _text(pair)
        at += len(pair)
    return [*parts, literal] if literal else parts


class MessageFormat:
    """A format, ready to be used."""

    def __init__(self, text: str) -> None:
        """Take the format apart.

        Raises:
            ValueError: it is too long, or has an unknown token.
        """
        self._parts: list[bytes | Callable[[StoredMessage], bytes]] = [
            part if isinstance(part, bytes) else _TOKENS[part] for part in split_format(text)
        ]

    def of(self, message: StoredMessage) -> bytes:
        """Return what is written of *message*; a body is not changed, whatever bytes it has."""
        return b"".join(part if isinstance(part, bytes) else part(message) for part in self._parts)


@usage_error(ValueError)
def parse_format(text: str) -> MessageFormat:
    """Return the format that an option names; raises :class:`typer.BadParameter`."""
    return MessageFormat(text)


def _text(text: str) -> bytes:
    # Bytes of the shell that are not UTF-8 come as surrogates, and leave as the same bytes.
    return text.encode("utf-8", "surrogateescape")


FormatOption = Annotated[
    MessageFormat | None,
    typer.Option("--format", parser=parse_format, metavar="FORMAT", help=_HELP),
]
