"""A parser's window on the tokens: the current one, one before and one after.

Tokens are read one ahead of the current one, and no further: the time to report a mistake
does not depend on the text behind it.
"""

from __future__ import annotations

from itertools import islice
from typing import NoReturn

from rocketray.errors import FilterSyntaxError

from . import reasons
from .lexer import Token, TokenKind, tokenize

__all__ = ["TokenReader"]


class TokenReader:
    """A position in the tokens of *sql*, at most *depth_max* brackets and prefixes deep."""

    def __init__(self, sql: str, depth_max: int) -> None:
        self.sql = sql
        self._unread = tokenize(sql)
        self._tokens = list(islice(self._unread, 2))
        self._index = 0
        self._depth = 0
        self._depth_max = depth_max

    @property
    def token(self) -> Token:
        """The next token to read."""
        return self._tokens[self._index]

    @property
    def previous(self) -> Token:
        """The token that was read last."""
        return self._tokens[self._index - 1]

    @property
    def following(self) -> Token:
        """The token after :attr:`token`, or the same one if it is the last."""
        return self._tokens[-1]

    @property
    def kind(self) -> TokenKind:
        """The kind of :attr:`token`."""
        return self._tokens[self._index].kind

    @property
    def text(self) -> str:
        """The text of :attr:`token`."""
        return self._tokens[self._index].text

    @property
    def start(self) -> int:
        """The start of :attr:`token`."""
        return self._tokens[self._index].start

    @property
    def previous_end(self) -> int:
        """The end of :attr:`previous`."""
        return self._tokens[self._index - 1].end

    def advance(self) -> Token:
        """Read a token."""
        token = self._tokens[self._index]
        self._index += 1
        self._tokens.extend(islice(self._unread, 1))
        return token

    def accept(self, kind: TokenKind) -> bool:
        """Read a token of this *kind*, if it is next; return whether it was."""
        if self.kind is not kind:
            return False
        self.advance()
        return True

    def expect(self, kind: TokenKind) -> Token:
        """Read a token, which must be of this *kind*."""
        if self.kind is not kind:
            reason = reasons.expected(reasons.described(kind), self.sql, self.token, self.following)
            self.fail_at_token(reason)
        return self.advance()

    def enter(self) -> Token:
        """Read a bracket or prefix, one level deeper."""
        self._depth += 1
        if self._depth > self._depth_max:
            self.fail_at_token(reasons.too_deep(self._depth_max))
        return self.advance()

    def leave(self) -> None:
        """Leave one level."""
        self._depth -= 1

    def fail_at_token(self, reason: str) -> NoReturn:
        """Fail with :attr:`token` marked as the mistake."""
        self.fail(reason, self.token.start, self.token.end)

    def fail(self, reason: str, start: int, end: int) -> NoReturn:
        """Raise the error that marks this part of the expression."""
        raise FilterSyntaxError(reason, self.sql, start, end)
