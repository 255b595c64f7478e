"""The operators of a condition, each described once: text, meaning, instruction, documentation.

A comparison (:class:`Operator`) has two values. A text operator (:class:`TextOperator`) tests a
text against constants, ``operand [NOT] word constants``. Lexer, parser, printer, evaluator, program
and warnings read these tables.

To add a text operator
  1. Describe it here, as an extension: RocketMQ's grammar is fixed.
  2. Give it an ``Operation`` in ``kernels/condition_codes.py``, a branch of its own in
     ``kernels/conditions.py``, and its equivalent in plain Python in
     ``tests/oracles/conditions.py``. Until it has a branch, the kernel leaves each row to the
     scalar evaluator, and ``tests/unit/kernels/test_conditions.py`` fails by its name.
  3. Add its line to the table in ``docs/reference/filters.md``.

CONTAINS, STARTSWITH and ENDSWITH are those of Java's ``String``, over UTF-16 units. Python compares
whole characters, with the same result except for one case: a lone surrogate in the searched text,
which in Java also matches half of a character outside the basic plane.
"""

from __future__ import annotations

import operator as python_operator
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rocketray.kernels.condition_codes import Accepts, Operation

from .like import compile_like, has_any_one, like_table


class Operator(Enum):
    """A comparison: its sign, its test of two ordered values, and the orders that it accepts."""

    EQ = "=", python_operator.eq, Accepts.EQUAL
    NE = "<>", python_operator.ne, Accepts.UNEQUAL
    LT = "<", python_operator.lt, Accepts.LESS
    LE = "<=", python_operator.le, Accepts.LESS_OR_EQUAL
    GT = ">", python_operator.gt, Accepts.GREATER
    GE = ">=", python_operator.ge, Accepts.GREATER_OR_EQUAL

    def __init__(self, sign: str, test: Callable[[Any, Any], bool], accepts: Accepts) -> None:
        self.sign = sign
        self.test = test
        self.accepts = accepts
        self.is_equality = accepts in (Accepts.EQUAL, Accepts.UNEQUAL)


Constants = tuple[str, ...]
Matcher = Callable[[str], bool]


class Form(Enum):
    """The form in which the constants of a text operator are written."""

    TEXT = "'text'"
    TEXTS = "('text', …)"
    PATTERN = "'pattern' [ESCAPE 'character']"


@dataclass(frozen=True, slots=True)
class Encoded:
    """The constants of a text operator for the kernel: texts in order, or a pattern's table."""

    texts: tuple[bytes, ...] = ()
    pattern: tuple[int, ...] = ()
    is_exotic: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TextOperator:
    """``operand [NOT] word constants``: false, or unknown, for anything but a text.

    Attributes:
        word: a keyword; if ``is_extension`` only where no name can stand, so that an expression of
            RocketMQ's means the same in all dialects.
        summary: when it is true, for the table in the documentation.
        test: returns the test of a text for the constants, without NOT; raises ``ValueError``, with
            the reason, if they are invalid.
        operation: the kernel's instruction for a property.
        encode: returns the constants for it; None if it does not take them.
        absent: the result, also with NOT, for an absent property: None is unknown.
        takes_any: whether any operand may stand before it, not only a property.
        never_empty: whether it is false with an empty text, also with NOT.
    """

    word: str
    form: Form
    summary: str
    test: Callable[[Constants], Matcher]
    operation: Operation
    encode: Callable[[Constants], Encoded | None]
    absent: bool | None = None
    takes_any: bool = False
    never_empty: bool = False
    is_extension: bool = False

    def __repr__(self) -> str:
        return self.word


# -- CONTAINS and similar -----------------------------------------------------------------------

# A lone surrogate, which in Java matches half of a character; and U+FFFD, which invalid UTF-8 is
# read as.
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXOTIC = re.compile("[\ud800-\udfff\ufffd]")


def _part(
    word: str, test: Callable[[str, str], bool], operation: Operation, what: str
) -> TextOperator:
    """Return the operator whose *test* takes the text and the part to find in it."""

    def test_of(constants: Constants) -> Matcher:
        (part,) = constants
        if _SURROGATE.search(part):
            units = _utf16_units(part)
            return lambda text: test(_utf16_units(text), units)
        return lambda text: test(text, part)

    return TextOperator(
        word,
        Form.TEXT,
        f"the text {what} the other one; never true if that is empty, also with `NOT`",
        test_of,
        operation,
        _encode_in_order,
        absent=False,
        takes_any=True,
        never_empty=True,
    )


def _utf16_units(text: str) -> str:
    """Return *text* with one character per UTF-16 unit."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, struct.unpack(f"<{len(encoded) // 2}H", encoded)))


def _encode_in_order(constants: Constants) -> Encoded:
    return Encoded(tuple(map(_encoded, constants)), is_exotic=any(map(_is_exotic, constants)))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_exotic(text: str) -> bool:
    """Return whether comparing UTF-8 byte by byte could differ from comparing characters.

    A lone surrogate has no UTF-8, and U+FFFD may be stored as other bytes.
    """
    return _EXOTIC.search(text) is not None


# -- IN and LIKE --------------------------------------------------------------------------------


def _is_one_of(constants: Constants) -> Matcher:
    return frozenset(constants).__contains__


def _encode_for_bisection(constants: Constants) -> Encoded:
    texts = sorted({_encoded(text) for text in constants}, key=lambda text: (len(text), text))
    return Encoded(tuple(texts), is_exotic=any(map(_is_exotic, constants)))


def _is_like(constants: Constants) -> Matcher:
    return compile_like(*constants).matches


def _encode_pattern(constants: Constants) -> Encoded | None:
    table = like_table(*constants)
    if table is None:
        return None
    return Encoded((), tuple(table), _is_exotic(constants[0]) or has_any_one(*constants))


# -- the table ----------------------------------------------------------------------------------

IN = TextOperator(
    "IN",
    Form.TEXTS,
    "the text is one of several; a list of numbers, in the dialect `rocketray`, compares by `=`",
    _is_one_of,
    Operation.TEXT,
    _encode_for_bisection,
)
_ALL = (
    IN,
    _part("CONTAINS", str.__contains__, Operation.CONTAINS, "contains"),
    _part("STARTSWITH", str.startswith, Operation.STARTSWITH, "starts with"),
    _part("ENDSWITH", str.endswith, Operation.ENDSWITH, "ends with"),
    TextOperator(
        "LIKE",
        Form.PATTERN,
        "the text has the form of the pattern: `_` is any character, `%` any number of them",
        _is_like,
        Operation.LIKE,
        _encode_pattern,
        is_extension=True,
    ),
)
TEXT_OPERATORS = {each.word: each for each in _ALL}
