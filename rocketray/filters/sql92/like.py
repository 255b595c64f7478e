"""LIKE as an automaton that takes one step per character, whatever the pattern.

A pattern is a row of tokens: a literal character, or ``_`` for any one character. State *i* means
that the first *i* tokens are matched; ``%`` before token *i* lets state *i* repeat. The bits of one
number are all states that the text so far can have led to, so there is no backtracking, and
``%a%a%a%b`` costs no more than ``a%``. ``like_table`` is the same over the bytes of UTF-8, for the
kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

BYTE_TOKENS_MAX = 62  # so many states fit into a signed 64-bit number
_ANY_ONE, _ANY_NUMBER = "_", "%"  # SQL's; only ESCAPE makes them characters

_Symbol = TypeVar("_Symbol", str, int)


@dataclass(frozen=True, slots=True)
class Automaton(Generic[_Symbol]):
    """States as bits: those that repeat, the one that accepts, and the next ones by symbol."""

    repeated: int
    accepted: int
    any_one: int
    onwards: dict[_Symbol, int]

    def matches(self, text: Iterable[_Symbol]) -> bool:
        """Return whether the pattern covers all of *text*."""
        states = 1
        for symbol in text:
            step = self.onwards.get(symbol, self.any_one)
            states = (states & step) << 1 | (states & self.repeated)
            if not states:
                return False
        return states & self.accepted != 0


def compile_like(pattern: str, escape: str | None = None) -> Automaton[str]:
    """Return the automaton over characters.

    Raises :class:`ValueError` if *escape* is not one character, or stands before anything but
    ``%``, ``_`` and itself.
    """
    return _automaton(*_parse(pattern, escape))


def has_any_one(pattern: str, escape: str | None = None) -> bool:
    """Return whether the pattern has a ``_`` that stands for any one character."""
    return None in _parse(pattern, escape)[0]


def like_table(pattern: str, escape: str | None = None) -> list[int] | None:
    """Return the automaton over bytes for the kernel; None for a pattern that is too long.

    ``_`` stands for one byte there, so the table is valid only for ASCII text.
    """
    characters, repeated = _parse(pattern, escape)
    tokens: list[int | None] = []
    repeats = set()
    # An empty token at the end, where a last % repeats.
    for number, token in enumerate((*characters, "")):
        if number in repeated:
            repeats.add(len(tokens))
        tokens += [None] if token is None else token.encode("utf-8", "surrogatepass")
    if len(tokens) > BYTE_TOKENS_MAX:
        return None
    found = _automaton(tokens, repeats)
    return [
        found.repeated,
        found.accepted,
        *(found.onwards.get(byte, found.any_one) for byte in range(256)),
    ]


def _automaton(tokens: Sequence[_Symbol | None], repeats: Iterable[int]) -> Automaton[_Symbol]:
    any_one = sum(1 << number for number, token in enumerate(tokens) if token is None)
    onwards: dict[_Symbol, int] = {}
    for number, token in enumerate(tokens):
        if token is not None:
            onwards[token] = onwards.get(token, any_one) | 1 << number
    return Automaton(sum(1 << number for number in repeats), 1 << len(tokens), any_one, onwards)


def _parse(pattern: str, escape: str | None) -> tuple[list[str | None], set[int]]:
    """Return the tokens, None for any one character; and their positions behind a %."""
    if escape is not None and len(escape) != 1:
        raise ValueError("ESCAPE takes one character")
    tokens: list[str | None] = []
    repeats = set()
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in (_ANY_ONE, _ANY_NUMBER, escape):
                raise ValueError(f"in a pattern {escape} is allowed only before %, _ or {escape}")
            tokens.append(following)
        elif character == _ANY_NUMBER:
            repeats.add(len(tokens))
        else:
            tokens.append(None if character == _ANY_ONE else character)
    return tokens, repeats
