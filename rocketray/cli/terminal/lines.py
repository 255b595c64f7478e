"""JSON lines from stdin, with a limit on each line.

The standard library's ``json`` reads them, because expressions and tags of other clients may hold
lone surrogates, which faster parsers refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from rocketray.errors import StreamError

LINE_MAX_BYTES = 32 * 1024 * 1024  # a body of 4 MiB, each byte as \u00xx, and its properties


def read_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1, as soon as each is complete.

    Raises:
        StreamError: a line is longer than ``LINE_MAX_BYTES``.
    """
    number = 0
    while line := stream.readline(LINE_MAX_BYTES + 1):
        number += 1
        if len(line) > LINE_MAX_BYTES:
            raise StreamError(
                f"line {number} of the input is longer than {LINE_MAX_BYTES} bytes; the rest of "
                "the input was not read"
            )
        if not line.isspace():
            yield number, line


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; raises :class:`ValueError` if it is none."""
    try:
        value = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        # Not a TypeError: callers catch one error for whatever is no object.
        raise ValueError(f"not a JSON object, but a {type(value).__name__}")  # noqa: TRY004
    return value
