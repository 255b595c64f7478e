r"""RocketMQ's comparison of values of different types: Java's conversions, not Python's.

    left \ right  int32      int64      double     boolean    string
    int32         as ints    as ints    as double  less       right as int32
    int64         as ints    as ints    as double  less       right as int64
    double        as double  as double  as double  less       right as double
    boolean       less       less       less       as is      an error
    string        as int32   as int64   as double  as bool    text for =, else both as double

"Less" is RocketMQ's result where a conversion makes no sense: ``=`` is false, ``<`` is true. Null
compares with nothing, so the callers handle it first. Texts are converted to numbers as by
``Integer.valueOf``, ``Long.valueOf`` and ``Double.valueOf``; a text that cannot be converted raises
:class:`FilterEvaluationError`. Doubles are ordered by ``Double.compareTo``: NaN equals itself and
is above everything, -0.0 is below 0.0.

The dialect "rocketray" never contradicts a verdict of RocketMQ's; where RocketMQ fails on the form
of a number, it compares numerically. Cell by cell:

  - a text beside an int32 or int64, on either side, a property's or a literal: a number (see
    ``_compare_with_integer``) is compared exactly with the integer. Where ``Integer.valueOf`` or
    ``Long.valueOf`` accepts it too, that is RocketMQ's verdict; where they fail (``120.0``,
    ``1e3``, ``.5``, a number that does not fit), it is the numeric one. Any other text is as in
    RocketMQ: digits of other scripts count, the rest is an error.
  - a text beside a double, and two texts beside ``<``: as in RocketMQ, through doubles. RocketMQ
    accepts every number there, rounds it, and so has a verdict, which stays: ``9007199254740993``
    is not above ``9007199254740992.0``, and of two properties -0.0 is below 0.0.
  - two texts beside ``=``: as in RocketMQ, as texts; this never fails.
  - truth values: as in RocketMQ, including the error of a truth value on the left of a text.

So '', 'abc', ' 1', '0x10', '5d' and 'NaN' beside an integer are errors in both. An error hides the
operands behind it in AND and OR, so an expression that failed on a message may now have a verdict;
an existing verdict stays the same.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from rocketray.errors import EvaluationErrorKind, FilterEvaluationError
from rocketray.message import JAVA_BLANKS

from .nodes import Kind
from .printer import shown

Comparator = Callable[[Any, Any], int]
"""Returns negative, zero or positive, for two present values of the kinds that it was made for."""

_SAFE_DIGITS = 9  # any 9 digits fit into 32 bits
_INT64_DIGITS = 19  # of 2**63 - 1
_FAILURES = {32: EvaluationErrorKind.NOT_INT32, 64: EvaluationErrorKind.NOT_INT64}
_DIGITS = re.compile(r"([+-]?)(\d+)")  # \d is any decimal digit of Unicode, as Character.digit
# Possessive (++, *+), here and below: a text comes from a message, and no text may make a match go
# back and take more than linear time.
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|((?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?"
)
_NUMBER = re.compile(
    r"([+-]?)(?:([0-9]++)(?:\.([0-9]*+))?|\.([0-9]++))(?:[eE]([+-]?)0*+([0-9]*+)(?<=[0-9]))?"
)
_SHORT_DIGITS = 18  # so many digits always fit into 63 bits
_FAR = 10**_SHORT_DIGITS  # the largest exponent that is looked at: see _compare_with_integer


def to_int32(text: str) -> int:
    """Convert as ``Integer.valueOf``: only a sign and digits of any script, within 32 bits."""
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _to_integer(text, 32)


def to_int64(text: str) -> int:
    """Convert as ``Long.valueOf``: as :func:`to_int32`, within 64 bits."""
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _to_integer(text, 64)


def to_double(text: str) -> float:
    """Convert as ``Double.valueOf``: trim; accept ``5d``, ``0x1.8p1``, ``NaN`` and ``Infinity``."""
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return float(text)
    trimmed = text.strip(JAVA_BLANKS)
    match = _DECIMAL.fullmatch(trimmed)
    if match:
        return float(trimmed.rstrip("fFdD") if match[1] else trimmed)
    match = _HEXADECIMAL.fullmatch(trimmed)
    if match:
        return _from_hexadecimal(match[1])
    raise _no_number(text)


def to_boolean(text: str) -> bool:
    """Convert as ``Boolean.valueOf``: "true" in any case is true, everything else is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Compare as ``Double.compareTo``."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right != 0.0:
        return 0
    left_key, right_key = _tie_key(left), _tie_key(right)
    return (left_key > right_key) - (left_key < right_key)


def compare_texts(left: str, right: str) -> int:
    """Compare two texts beside ``<`` or a similar operator: both must be numbers."""
    return compare_doubles(to_double(left), to_double(right))


def _number_comparator(kind: Kind) -> Comparator:
    """Return the dialect "rocketray"'s comparison of a text with an integer of *kind*: by value."""
    convert = _CONVERSIONS[kind]

    def compare(text: str, integer: int) -> int:
        order = _compare_with_integer(text, integer)
        if order is not None:
            return order
        try:
            return _compare(convert(text), integer)  # digits of other scripts
        except FilterEvaluationError:
            raise _no_number(text) from None

    return compare


def comparator(left: Kind, right: Kind, *, numeric: bool = False) -> Comparator:
    """Return the comparison of a *left* value with a *right* one; see the table of this module.

    With *numeric*, as in the dialect "rocketray".
    """
    if left is right is Kind.STRING:
        return compare_texts
    if left is Kind.STRING:
        return _text_comparator(right, numeric=numeric)
    if right is Kind.STRING:
        if left is Kind.BOOLEAN:
            return _refuse
        compare = _text_comparator(left, numeric=numeric)
        return lambda value, text: -compare(text, value)
    if left.is_number and right.is_number:
        return _compare_as_doubles if Kind.DOUBLE in (left, right) else _compare
    return _compare if left is right else _always_less


def converter(kind: Kind) -> Callable[[str], Any]:
    """Return the conversion of a text to a value of *kind*: a number or a truth value."""
    return _CONVERSIONS[kind]


def _no_number(text: str) -> FilterEvaluationError:
    return FilterEvaluationError(f"'{shown(text)}' is not a number", EvaluationErrorKind.NOT_DOUBLE)


def _text_comparator(kind: Kind, *, numeric: bool) -> Comparator:
    """Return the comparison of a text with a value of another *kind*."""
    if numeric and kind in _INTEGERS:
        return _number_comparator(kind)
    if kind not in _CONVERSIONS:
        return _always_less
    convert, compare = _CONVERSIONS[kind], compare_doubles if kind is Kind.DOUBLE else _compare
    return lambda text, value: compare(convert(text), value)


def _compare(left: int, right: int) -> int:
    return (left > right) - (left < right)


def _compare_as_doubles(left: float, right: float) -> int:
    return compare_doubles(float(left), float(right))


def _always_less(left: object, right: object) -> int:  # noqa: ARG001 - a Comparator
    return -1


def _refuse(left: object, right: object) -> int:
    raise FilterEvaluationError(
        f"a boolean on the left ({left}) cannot be compared with the string "
        f"'{shown(str(right))}' on the right; swap the two sides",
        EvaluationErrorKind.BOOLEAN_WITH_TEXT,
    )


def _to_integer(text: str, bits: int) -> int:
    match = _DIGITS.fullmatch(text)
    if match is None or (not text.isascii() and max(text) > "\uffff"):
        # Java reads UTF-16 units one by one, so digits outside the basic plane do not count.
        raise FilterEvaluationError(f"'{shown(text)}' is not a {bits}-bit integer", _FAILURES[bits])
    digits = (
        match[2]
        if text.isascii()
        else "".join(str(unicodedata.decimal(digit)) for digit in match[2])
    )
    significant = digits.lstrip("0")  # Java accepts any number of leading zeros, Python does not
    # More digits do not fit, and int() of thousands of them would raise an error of its own.
    value = int(match[1] + (significant or "0")) if len(significant) <= _INT64_DIGITS else 1 << bits
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise FilterEvaluationError(
            f"'{shown(text)}' does not fit into a {bits}-bit integer", _FAILURES[bits]
        )
    return value


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        # Java's valueOf rounds to infinity, where Python raises.
        return -math.inf if text.startswith("-") else math.inf


def _tie_key(value: float) -> int:
    """Return the order of values that ``<`` cannot order: -0.0, then any other number, then NaN."""
    if math.isnan(value):
        return 1
    return 0 if value or math.copysign(1.0, value) > 0 else -1


_INTEGERS = (Kind.INT32, Kind.INT64)
_CONVERSIONS: dict[Kind, Callable[[str], Any]] = {
    Kind.INT32: to_int32,
    Kind.INT64: to_int64,
    Kind.DOUBLE: to_double,
    Kind.BOOLEAN: to_boolean,
}


def _compare_with_integer(text: str, integer: int) -> int | None:
    """Return -1, 0 or 1 for a *text* below, at or above *integer*; None if it is no number.

    A number is ASCII ``[+-]?(d+(.d*)?|.d+)([eE][+-]?d+)?``, with nothing before or behind it. It is
    read as a sign, its digits without zeros at either end, and the position of its point among
    them, so ``1.50``, ``15e-1`` and ``0.015e2`` are one number and ``-0.0`` is 0. It may have any
    width, and is never converted to a float.

    The work is linear in the text, whatever the exponent: no power of ten is ever computed. An
    exponent of more than 18 digits counts as one of 18 digits, which no text could make up for: it
    would need as many zeros.
    """
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
