"""``send --format``: lines of stdin as messages, in the tokens with which messages are written."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import typer

from rocketray.cli.terminal.usage import usage_error

from .message_format import split_format

_BODY = "%s"
_FIELDS: dict[str, Callable[[bytes], dict[str, Any]]] = {
    _BODY: lambda value: {"body": base64.b64encode(value).decode()},
    "%k": lambda value: {"keys": [*filter(None, value.decode().split(" "))]},
    "%g": lambda value: {"tags": value.decode() or None},
    "%h": lambda value: {"properties": _pairs(value.decode())},
    "%p": lambda value: {"queueId": _number(value)},
}
_HELP = (
    "Read messages from stdin, a line each, in this form, as --format of consume writes it: %s "
    "body, %k keys, %g tag, %h properties as NAME=VALUE,NAME=VALUE, %p queue."
)


class LineFormat:
    """A format that takes lines apart.

    A token ends where the text that follows it in the format begins for the first time.
    """

    def __init__(self, text: str) -> None:
        """Check the format.

        Raises:
            ValueError: it has an unknown token, or does not say where a token ends.
        """
        self._parts = split_format(text)
        if self._parts and isinstance(last := self._parts[-1], bytes) and last.endswith(b"\n"):
            self._parts[-1:] = [last[:-1]] if len(last) > 1 else []
        tokens = [part for part in self._parts if isinstance(part, str)]
        for token in tokens:
            if token not in _FIELDS:
                known = ", ".join(_FIELDS)
                raise ValueError(f"{token} cannot be sent; a line can have {known}")
        if _BODY not in tokens or len({*tokens}) < len(tokens):
            raise ValueError("a line has a body, %s, and each token once")
        kinds = [type(part) for part in self._parts]
        if (str, str) in pairwise(kinds):
            raise ValueError("two tokens follow each other, so the first one has no end")
        if any(isinstance(part, bytes) and b"\n" in part for part in self._parts):
            raise ValueError("\\n can only be the last of a format: a line is one message")

    def fields(self, line: bytes) -> dict[str, Any]:
        """Return the fields of the message that *line* is, as messages are read from JSON.

        Raises:
            ValueError: the line does not have the form.
        """
        line, at = line.removesuffix(b"\n"), 0
        found: dict[str, Any] = {}
        for number, part in enumerate(self._parts, 1):
            if isinstance(part, bytes):
                if not line.startswith(part, at):
                    raise ValueError(f"not in the form: no {_shown(part)} at byte {at}")
                at += len(part)
                continue
            end = len(line)
            if number < len(self._parts):
                following = self._parts[number]
                assert isinstance(following, bytes)
                end = line.find(following, at)
                if end < 0:
                    raise ValueError(f"not in the form: no {_shown(following)} after {part}")
            try:
                found |= _FIELDS[part](line[at:end])
            except UnicodeDecodeError:
                raise ValueError(f"{part} is not UTF-8") from None
            at = end
        if at < len(line):
            raise ValueError(f"not in the form: {len(line) - at} bytes follow its end")
        return found


@usage_error(ValueError)
def parse_line_format(text: str) -> LineFormat:
    """Return the format that an option names; raises :class:`typer.BadParameter`."""
    return LineFormat(text)


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for pair in text.split(",") if text else ():
        name, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"%h: {pair!r} has no '='; write NAME=VALUE,NAME=VALUE")
        if name in pairs:
            raise ValueError(f"%h: property {name} stands there twice; a message has it once")
        pairs[name] = value
    return pairs


def _number(value: bytes) -> int | None:
    # Ten digits have all queue ids of 32 bits.
    if value and not (value.isdigit() and len(value) <= 10):
        raise ValueError(f"%p: {_shown(value)} is not the number of a queue")
    return int(value) if value else None


def _shown(value: bytes) -> str:
    return repr(value)[1:]


LineFormatOption = Annotated[
    LineFormat | None,
    typer.Option("--format", parser=parse_line_format, metavar="FORMAT", help=_HELP),
]
