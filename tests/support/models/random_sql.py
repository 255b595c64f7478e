"""Random SQL92 expressions, extensions included, and property values, much quicker than hypothesis makes them.

The same seed gives the same ones. Values are nasty on purpose: numbers on the edge of their
types, in every spelling that Java takes and many that it does not, and text in several scripts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

PROPERTY_NAMES = ("TAGS", "a", "b", "a-b.c/d", "region")
_WRITTEN_NAMES = ("TAGS", "a", "b", '"a-b.c/d"', "region")
Spans = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MATCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_WORDS = ("eu", "us", "e", "x", "it's", "true", "TRUE", "5", "05", "中文", "é", "😀", "�", "%_", "")
_NUMBERS = (
    *("0", "1", "5", "7", "10", "100", "2147483647", "2147483648", "9007199254740993"),
    *("9223372036854775807", "0.5", "5.0", "1e2", "1.5e300", "4.9E-324", "123456789.25"),
)
_ODD_VALUES = (
    *("+5", "-5", "--5", "+", "-", " 5", "5 ", "\t5\n", "5.", ".5", ".", "5.0", "5d", "5F", "5L"),
    *("0x10", "0x1p3", "0X1.8P1d", "NaN", "-NaN", "nan", "Infinity", "-Infinity", "inf", "1_0"),
    *("-0", "-0.0", "0.0", "0e9", "1e", "1e+", "1e5", "1E-5", "1e400", "1e-400", "1e22", "1e23"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "99999999999", "007"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 30),
    *("-9223372036854775809", "0" * 40 + "5", "9007199254740993", "0.1", "123456789.25"),
    *("５", "٣", "１２3", "-５", "\U0001d7d3", "5\u0301", "\u00a05", "true", "TRUE", "tRuE", "yes"),
    *("a\nb", "'", "''", '"', "\\", "--", "a" * 300, "\x00", "e\u0301u", "tru\u212a"),
)


def random_message(generator: random.Random) -> dict[str, str]:
    """The properties of a message; each is absent now and then."""
    return {name: _value(generator) for name in PROPERTY_NAMES if generator.random() < 0.85}


def random_expression(generator: random.Random, depth: int = 3) -> str:
    """A condition; nearly all of them parse."""
    kind = generator.random()
    if depth == 0 or kind < 0.45:
        return _plain_test(generator)
    if kind < 0.75:
        word = generator.choice((" AND ", " OR "))
        count = generator.choice((2, 2, 3))
        return word.join(_condition(generator, depth - 1) for _ in range(count))
    if kind < 0.82:
        return f"NOT {_condition(generator, depth - 1)}"
    return _test_of_conditions(generator, depth - 1)


def spans_of(messages: Sequence[Mapping[str, str | bytes]], names: Sequence[str]) -> Spans:
    """The named properties of *messages* as the kernels take them; a text in UTF-8."""
    data = bytearray(b"before")
    starts = np.zeros((len(names), len(messages)), np.int64)
    sizes = np.full_like(starts, -1)
    for row, message in enumerate(messages):
        for number, name in enumerate(names):
            value = message.get(name)
            if value is not None:
                text = value if isinstance(value, bytes) else value.encode()
                starts[number, row], sizes[number, row] = len(data), len(text)
                data += text
    return np.frombuffer(bytes(data), np.uint8), starts, sizes


def _plain_test(generator: random.Random) -> str:
    name, other = generator.choices(_WRITTEN_NAMES, k=2)
    number, comparison = _number(generator), generator.choice(_COMPARISONS)
    text, negation = _quoted(generator), generator.choice(("", "NOT "))
    return generator.choice(
        (
            f"{name} {comparison} {number}",
            f"{name} {comparison} {number}",
            f"{number} {comparison} {name}",
            f"{name} {comparison} {other}",
            f"{name} = {text}",
            f"{text} <> {name}",
            f"{name} {negation}BETWEEN {generator.choice(_NUMBERS)} AND {other}",
            f"{name} {negation}BETWEEN -{generator.choice(_NUMBERS)} AND {number}",
            f"{name} {negation}IN ({', '.join(_quoted(generator) for _ in range(3))})",
            f"{name} {negation}{generator.choice(_MATCHES)} {text}",
            f"{name} IS {negation}NULL",
            f"{name} {negation}LIKE {_pattern(generator)}",
            f"{name} {negation}IN ({number}, {_number(generator)})",
            f"{name} {generator.choice(('=', '<>'))} {generator.choice(('TRUE', 'FALSE'))}",
            f"TRUE = {name}",
            f"{name} {comparison} -{other}",
            f"-{name} {comparison} {number}",
            f"{text} {generator.choice(_MATCHES)} {_quoted(generator)}",
            f"{number} {generator.choice(('=', '<>'))} {text}",
            generator.choice((name, "TRUE", "FALSE", "NULL")),
        )
    )


def _test_of_conditions(generator: random.Random, depth: int) -> str:
    condition, other = _condition(generator, depth), _condition(generator, depth)
    name, number, text = generator.choice(_WRITTEN_NAMES), _number(generator), _quoted(generator)
    equality, negation = generator.choice(("=", "<>")), generator.choice(("", "NOT "))
    return generator.choice(
        (
            f"{condition} {equality} {other}",
            f"{condition} {equality} {name}",
            f"{name} {equality} {condition}",
            f"{condition} {equality} {number}",
            f"{number} {equality} {condition}",
            f"{text} {equality} {condition}",
            f"{condition} IS {negation}NULL",
            f"-{condition} {equality} {other}",
            f"{name} > -{condition}",
            f"-{condition} < {name}",
            f"{condition} {negation}{generator.choice(_MATCHES)} {text}",
        )
    )


def _condition(generator: random.Random, depth: int) -> str:
    return f"({random_expression(generator, depth)})"


def _pattern(generator: random.Random) -> str:
    text = "".join(generator.choices("%%_5eux't中!", k=generator.randrange(6)))
    escape = generator.choice(("", "", " ESCAPE '!'"))
    return "'" + text.replace("'", "''") + "'" + escape


def _number(generator: random.Random) -> str:
    return generator.choice(("", "", "-")) + generator.choice(_NUMBERS)


def _quoted(generator: random.Random) -> str:
    return "'" + generator.choice(_WORDS).replace("'", "''") + "'"


def _value(generator: random.Random) -> str:
    kind = generator.random()
    if kind < 0.4:
        return str(generator.randrange(-3, 13))
    if kind < 0.65:
        return generator.choice(_WORDS)
    if kind < 0.85:
        return generator.choice(_ODD_VALUES)
    if kind < 0.9:
        return repr(generator.uniform(-200, 200) * 10.0 ** generator.randrange(-3, 25))
    if kind < 0.95:
        return "".join(generator.choices("+-.0123456789eEdfxNI ", k=generator.randrange(1, 25)))
    # From 3 on: 1 and 2 end a name and a value where they are stored, so no value has them.
    return "".join(map(chr, generator.choices(range(3, 0xD800), k=generator.randrange(5))))
