"""CONTAINS, STARTSWITH and ENDSWITH as in Java's ``String``: over UTF-16 units.

Python compares whole characters, with the same result except for one case: a lone surrogate in
the searched text, which in Java also matches half of a character outside the basic plane.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from .nodes import Match, MatchOperator

__all__ = ["is_exotic", "text_test"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_EXOTIC = re.compile("[\ud800-\udfff\ufffd]")
_PYTHON_TESTS: dict[MatchOperator, Callable[[str, str], bool]] = {
    MatchOperator.CONTAINS: str.__contains__,
    MatchOperator.STARTSWITH: str.startswith,
    MatchOperator.ENDSWITH: str.endswith,
}


def text_test(node: Match) -> Callable[[str], bool]:
    """Return the test of a text for containing, starting or ending with *node*'s, without NOT."""
    test, text = _PYTHON_TESTS[node.operator], node.text
    if _SURROGATE.search(text):
        units = _utf16_units(text)
        return lambda value: test(_utf16_units(value), units)
    return lambda value: test(value, text)


def is_exotic(text: str) -> bool:
    """Return whether comparing UTF-8 byte by byte could differ from comparing characters.

    A lone surrogate has no UTF-8, and U+FFFD may be stored as other bytes.
    """
    return _EXOTIC.search(text) is not None


def _utf16_units(text: str) -> str:
    """Return *text* with one character per UTF-16 unit."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, struct.unpack(f"<{len(encoded) // 2}H", encoded)))
