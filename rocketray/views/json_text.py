"""JSON for people: a text in lines, with each of its values written as in the text."""

from __future__ import annotations

import json
import re
from typing import NoReturn

# A string; a mark; or a number, true, false or null. What is between them is blank.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_DEPTH_MAX = 32  # else indents could be as long as the square of the text
_STEP = "  "
_OPENING, _CLOSING = ("[", "{"), ("]", "}")


def json_lines(text: str) -> str | None:
    """Return an object or an array with a line for each of its values; None for any other text.

    Only the blanks between its parts change: numbers keep their digits, strings their escapes, and
    names that are there twice stay. None also if it is nested more than 32 deep.
    """
    if not text.lstrip().startswith(("{", "[")) or not is_json(text):
        return None
    found: list[str] = []
    depth, before = 0, ""
    for part in _TOKEN.findall(text):
        opens, closes = before in _OPENING, part in _CLOSING
        depth += opens - closes
        if depth + (part in _OPENING) > _DEPTH_MAX:
            return None
        if (opens and not closes) or before == "," or (closes and not opens):
            found.append("\n" + _STEP * depth)
        found.append(": " if part == ":" else part)
        before = part
    return "".join(found)


def is_json(text: str) -> bool:
    """Return whether *text* is JSON: without NaN and infinities, which Python reads as well."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
