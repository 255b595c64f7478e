"""A compiled expression, made once for each text, dialect and rules.

An expression is sent between processes as its text and compiled in the receiver. Results and
failures are cached, :data:`CACHE_SIZE` texts each, so a member that repeats a request with an
invalid expression costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rocketray.errors import FilterSyntaxError

from .dialect import Dialect, current_rules
from .evaluator import Evaluator, Properties, compile_tree
from .nodes import Expression, property_names
from .parser import SQL_MAX_CHARS, parse

CACHE_SIZE = 1024  # at most 4 KiB of text each, some 20 KiB with tree and closures
_NO_PROPERTIES: Properties = {}


class CompiledExpression:
    """An SQL92 expression as RocketMQ evaluates it. Immutable, safe to share between threads.

    Attributes:
        sql: the original text.
        tree: its syntax tree.
        property_names: all that :meth:`evaluate` ever looks up; a caller needs to decode no more.
    """

    __slots__ = ("_evaluator", "property_names", "sql", "tree")

    def __init__(self, sql: str, tree: Expression) -> None:
        self.sql = sql
        self.tree = tree
        self.property_names = property_names(tree)
        self._evaluator: Evaluator = compile_tree(tree)

    def evaluate(self, properties: Mapping[str, str] | None) -> bool | None:
        """Return True, False or None for unknown; ``None`` for *properties* means no properties.

        Raises :class:`FilterEvaluationError` where a value cannot be compared: no match, and the
        caller counts it.
        """
        return self._evaluator(_NO_PROPERTIES if properties is None else properties)

    def matches(self, properties: Mapping[str, str] | None) -> bool:
        """Return whether the expression is True for *properties*; raise as :meth:`evaluate`."""
        return self.evaluate(properties) is True

    def __repr__(self) -> str:
        return f"CompiledExpression({self.sql!r})"


def compile_expression(
    sql: str, dialect: Dialect = "rocketmq", rules: int | None = None
) -> CompiledExpression:
    """Return the compiled *sql*, from the cache if it was compiled lately; None: current rules.

    Without a dialect it is RocketMQ's, because a broker's files mean that one.
    Raises :class:`FilterSyntaxError`, which marks the place; failures are cached like successes.
    """
    if len(sql) > SQL_MAX_CHARS:
        parse(sql, dialect, rules)  # raises; a text that long is not worth caching
    outcome = _compile(sql, dialect, current_rules(dialect) if rules is None else rules)
    if isinstance(outcome, CompiledExpression):
        return outcome
    # A new error each time: an error that is raised twice would accumulate tracebacks.
    raise FilterSyntaxError(outcome.reason, outcome.expression, outcome.start, outcome.end)


@lru_cache(maxsize=CACHE_SIZE)
def _compile(sql: str, dialect: Dialect, rules: int) -> CompiledExpression | FilterSyntaxError:
    try:
        return CompiledExpression(sql, parse(sql, dialect, rules))
    except FilterSyntaxError as error:
        # A traceback would keep the frames of this call alive with the cache.
        return error.with_traceback(None)
