"""RocketMQ's SQL92 dialect: text to a syntax tree, and a tree to an answer for a message.

``compile_expression(sql).matches(properties)`` is all that most callers need. The dialect is
RocketMQ's, quirks included, but for text after a complete expression, which is an error here; the dialect
"rocketray" extends it.
"""

from __future__ import annotations

from .compiled import CompiledExpression, compile_expression
from .parser import SQL_MAX_CHARS, Dialect, parse
from .printer import to_sql

__all__ = [
    "SQL_MAX_CHARS",
    "CompiledExpression",
    "Dialect",
    "compile_expression",
    "parse",
    "to_sql",
]
