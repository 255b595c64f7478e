"""The choice of a filter, as agents, sinks, commands and queries offer it, and what goes together.

At most one of ``tags``, ``sql``, ``where`` and ``named`` is given; none is all messages. A named
filter has its own dialect and its own policy for errors, so that nothing is given beside its name.
What goes with tags, SQL and predicates is checked by the subscription (subscription.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketray.errors import ConfigError

from .filter_name import FilterName

if TYPE_CHECKING:
    from .sql92 import Dialect
    from .subscription import ErrorPolicy, Subscription


@dataclass(frozen=True, slots=True)
class FilterChoice:
    """What a user gave as a filter, not checked yet.

    - ``where``: a predicate, as ``"module:callable"`` or as a top-level function.
    - ``named``: the name of a filter of the topic, as ``large`` or ``large@2``.
    - ``dialect``: the SQL dialect of ``sql``.
    - ``on_filter_error``: the action for a message on which the predicate ``where`` fails.
    """

    tags: str | None = None
    sql: str | None = None
    where: str | Callable[..., Any] | None = None
    named: str | FilterName | None = None
    dialect: Dialect | None = None
    on_filter_error: ErrorPolicy = "stop"

    @property
    def kinds(self) -> list[str]:
        """Which of tags, sql and where are given; two of them are a mistake."""
        return [kind for kind in ("tags", "sql", "where") if getattr(self, kind) is not None]

    @property
    def all_but_name(self) -> list[str]:
        """What is given of all but ``named``; with a name, anything is a mistake."""
        given = self.kinds
        if self.dialect is not None:
            given.append("dialect")
        if self.on_filter_error != "stop":
            given.append("on_filter_error")
        return given

    def filter(self) -> Subscription | FilterName:
        """Return the filter, or the name of one, which is looked up where the topic is known.

        Imports the predicate, if it is one, so that a wrong one raises where it is declared.

        Raises:
            ConfigError: something is given beside a name, or it is no name.
            PredicateError: the predicate cannot be imported. As :meth:`subscription`.
        """
        if self.named is None:
            subscription = self.subscription()
            subscription.check()
            return subscription
        if self.all_but_name:
            raise ConfigError(
                f"filter={self.named!r:.80} names a whole filter, with its dialect and its policy "
                f"for errors; leave out {' and '.join(self.all_but_name)}"
            )
        return FilterName.parse(self.named)

    def subscription(self) -> Subscription:
        """Return the filter of tags, sql or where; that of all messages if none is given.

        Does not import a predicate: a command runs where only the node may have its module.

        Raises:
            ConfigError: two are given, or what is given with one of them is for another kind.
            FilterSyntaxError: the expression does not parse.
            PredicateError: the predicate's path is malformed.
        """
        from .subscription import Subscription  # noqa: PLC0415 - 50 ms, not needed for --help

        if len(self.kinds) > 1:
            raise ConfigError(
                f"give one of tags, sql and where, not {' and '.join(self.kinds)}; "
                "tags can be part of an SQL expression: TAGS = 'pay' AND amount > 100"
            )
        rest = self.on_filter_error, self.dialect
        if self.where is not None:
            subscription = Subscription("CLASS", Subscription.where(self.where).expression, *rest)
        elif self.sql is not None:
            subscription = Subscription("SQL92", self.sql, *rest)
        else:
            subscription = Subscription("TAG", "*" if self.tags is None else self.tags, *rest)
        subscription.check_text()
        return subscription
