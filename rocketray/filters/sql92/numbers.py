"""Numbers of any width as text, compared exactly and never through a float.

A number is ASCII ``[+-]?(d+(.d*)?|.d+)([eE][+-]?d+)?``, with nothing before or behind it. It is
read as a sign, its digits without zeros at either end, and the position of its point among them, so
``1.50``, ``15e-1`` and ``0.015e2`` are one number and ``-0.0`` is 0.

The work is linear in the text, whatever the exponent: no power of ten is ever computed. An exponent
of more than 18 digits counts as one of 18 digits, which no text could make up for: it would need as
many zeros.
"""

from __future__ import annotations

import re

__all__ = ["compare_with_integer"]

_NUMBER = re.compile(
    r"([+-]?)(?:([0-9]++)(?:\.([0-9]*+))?|\.([0-9]++))(?:[eE]([+-]?)0*+([0-9]*+)(?<=[0-9]))?"
)
_SHORT_DIGITS = 18
_FAR = 10**_SHORT_DIGITS


def compare_with_integer(text: str, integer: int) -> int | None:
    """Return -1, 0 or 1 for a *text* below, at or above *integer*; None if it is no number."""
    if len(text) <= _SHORT_DIGITS and text.isascii() and text.isdigit():
        value = int(text)
        return (value > integer) - (value < integer)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, behind, only_behind, exponent_sign, exponent = match.groups(default="")
    written = whole + behind + only_behind
    digits = written.lstrip("0")
    if not digits:
        return (integer < 0) - (integer > 0)
    is_negative = sign == "-"
    if integer == 0 or is_negative != (integer < 0):
        return -1 if is_negative else 1
    power = int(exponent or "0") if len(exponent) <= _SHORT_DIGITS else _FAR
    point = len(whole) - (len(written) - len(digits)) + (-power if exponent_sign == "-" else power)
    other = str(abs(integer))
    left, right = (point, digits.rstrip("0")), (len(other), other.rstrip("0"))
    order = (left > right) - (left < right)  # digits are ordered as texts are: from the left
    return -order if is_negative else order
