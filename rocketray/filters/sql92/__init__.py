"""RocketMQ's SQL92 dialect: text to a syntax tree, and a tree to an answer for a message.

``compile_expression(sql).matches(properties)`` is all that most callers need. The dialect "rocketmq"
is RocketMQ's, quirks included, but for text after a complete expression, which is an error here. The
dialect "rocketray" (see dialect.py), which users get, keeps each of its verdicts, and compares
numbers where RocketMQ fails on their form. Nothing here takes a default for a user: that is
``filters/subscription.py``.
"""

from __future__ import annotations

from .compiled import CompiledExpression, compile_expression
from .dialect import Dialect
from .parser import SQL_MAX_CHARS, parse
from .printer import to_sql

__all__ = [
    "SQL_MAX_CHARS",
    "CompiledExpression",
    "Dialect",
    "compile_expression",
    "parse",
    "to_sql",
]
