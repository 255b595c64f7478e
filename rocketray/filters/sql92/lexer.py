"""The lexer: text of an SQL92 expression to tokens, by the rules of RocketMQ's SelectorParser.jj.

The longest match wins, as in JavaCC. Consequences that are easy to get wrong:
  1. ``--`` starts a comment only where a line end follows it; without one it is two minus signs.
  2. Numbers have no leading zeros: ``007`` is three tokens, ``0x10`` is ``0`` and ``x10``.
  3. A name in double quotes is a token, though RocketMQ's dialect has no place for it.
  4. Letters, digits and blanks are ASCII. A string holds any character, and ``''`` is a quote.

Lexing never fails: text that is no token ends the tokens as one ILLEGAL token, so that the parser
reports whichever mistake comes first. Tokens are produced one by one, and the parser reads at most
one behind a mistake; so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from .operators import TEXT_OPERATORS, Operator, TextOperator


class TokenKind(Enum):
    """The kind of a token; the value of one that has only one text is that text."""

    IDENTIFIER = "a property name"
    QUOTED = "a property name in double quotes"
    INTEGER = "an integer"
    FLOAT = "a decimal number"
    STRING = "a string"
    NOT = "NOT"
    AND = "AND"
    OR = "OR"
    BETWEEN = "BETWEEN"
    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    IS = "IS"
    TEXT_OPERATOR = "an operator on a text"
    COMPARISON = "a comparison"
    OPEN = "("
    CLOSE = ")"
    COMMA = ","
    PLUS = "+"
    MINUS = "-"
    END = "the end of the expression"
    ILLEGAL = "text that is no token"


class Token(NamedTuple):
    """A token as written; ``start`` is its first character's position."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after the token's last character."""
        return self.start + len(self.text)

    @property
    def text_operator(self) -> TextOperator | None:
        """The text operator that this is, or that a name would be in a dialect with extensions."""
        if self.kind in (TokenKind.TEXT_OPERATOR, TokenKind.IDENTIFIER):
            return TEXT_OPERATORS.get(self.text.upper())
        return None


_BLANK = re.compile(r"[ \t\n\r\f]++|/\*(?s:.*?)\*/")
_BLANK_OR_LINE_COMMENT = re.compile(rf"{_BLANK.pattern}|--[^\n\r]*+[\n\r]")
# Possessive (++, *+): what matched is never divided again, so lexing is linear in the text.
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_FLOAT = re.compile(r"(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++")
_INTEGER = re.compile(r"0|[1-9][0-9]*+[lL]?")
_STRING = re.compile(r"'[^']*+(?:''[^']*+)*+'")
_QUOTED = re.compile(r'"[^"]++"')
# Floats before integers: the longest match wins.
_RULES = (
    (_FLOAT, TokenKind.FLOAT),
    (_INTEGER, TokenKind.INTEGER),
    (_STRING, TokenKind.STRING),
    (_QUOTED, TokenKind.QUOTED),
)
_KEYWORDS = {kind.value: kind for kind in TokenKind if kind.value.isupper()}
_KEYWORDS |= {
    each.word: TokenKind.TEXT_OPERATOR for each in TEXT_OPERATORS.values() if not each.is_extension
}
_SIGNS = {kind.value: kind for kind in TokenKind if len(kind.value) == 1}
_SIGNS |= {each.sign: TokenKind.COMPARISON for each in Operator}
# The longest first: <= is one sign.
_SIGN = re.compile("|".join(map(re.escape, sorted(_SIGNS, key=len, reverse=True))))


def tokenize(sql: str) -> Iterator[Token]:
    """Yield the tokens of *sql*; the last one is END, or ILLEGAL at text that is no token."""
    last_line_end = max(sql.rfind("\n"), sql.rfind("\r"))
    position = _skip_blanks(sql, 0, last_line_end)
    while position < len(sql):
        token = _next_token(sql, position)
        yield token
        if token.kind is TokenKind.ILLEGAL:
            return
        position = _skip_blanks(sql, token.end, last_line_end)
    yield Token(TokenKind.END, "", len(sql))


def _skip_blanks(sql: str, position: int, last_line_end: int) -> int:
    """Return the next non-blank position; after the last line end no ``--`` starts a comment."""
    while match := (_BLANK_OR_LINE_COMMENT if position < last_line_end else _BLANK).match(
        sql, position
    ):
        position = match.end()
    return position


def _next_token(sql: str, position: int) -> Token:
    if match := _WORD.match(sql, position):
        word = match.group()
        return Token(_KEYWORDS.get(word.upper(), TokenKind.IDENTIFIER), word, position)
    if match := _SIGN.match(sql, position):
        return Token(_SIGNS[match.group()], match.group(), position)
    for pattern, kind in _RULES:
        if match := pattern.match(sql, position):
            return Token(kind, match.group(), position)
    return Token(TokenKind.ILLEGAL, _illegal_text(sql, position), position)


def _illegal_text(sql: str, position: int) -> str:
    """Return the text to mark: an open string or comment up to the end, else one character."""
    open_ended = sql[position] == "'" or sql.startswith("/*", position)
    return sql[position:] if open_ended else sql[position]
