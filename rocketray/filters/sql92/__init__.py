"""RocketMQ's SQL92: parser, syntax tree, dialects, and evaluation on messages.

``compile_expression(sql).matches(properties)`` is all that most callers need.

The dialect "rocketmq" behaves as RocketMQ, quirks included, with one exception: text after a
complete expression is an error. The dialect "rocketray" (see dialect.py) is the users' default. It
keeps every verdict of RocketMQ, and compares numerically where RocketMQ fails on the form of a
number. Functions of this package have no default dialect; the users' default is set in
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
