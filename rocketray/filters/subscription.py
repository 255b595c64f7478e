"""A member's subscription, as text that can be sent, and RocketMQ's reading of tag expressions.

Tag expressions are separated by ``||`` and trimmed as Java's ``String.trim`` does. Source:
RocketMQ 5.3.3, ``FilterAPI.buildSubscriptionData``, with its quirks: `` || `` matches nothing, and
``" * "`` is the literal tag ``*``. A tag is checked twice: by hash on the broker, by text at the
consumer (``ExpressionMessageFilter`` and ``PullAPIWrapper.processPullResult``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast, get_args

from rocketray.errors import ConfigError, FilterSyntaxError
from rocketray.hashing import java_hash_code, signed_32
from rocketray.message import JAVA_BLANKS

from .class_filter import check_predicate, load_predicate, predicate_path
from .sql92 import SQL_MAX_CHARS, CompiledExpression, Dialect, compile_expression
from .sql92.dialect import DEFAULT_DIALECT, check_rules, current_rules

ExpressionType = Literal["TAG", "SQL92", "CLASS"]
ErrorPolicy = Literal["stop", "skip", "deliver"]
EXPRESSION_MAX_CHARS = SQL_MAX_CHARS
_SHOWN_CHARS = 60  # of an expression that is too long to show
_ALL = "*"
_SEPARATOR = "||"
_NAMED_MAX_CHARS = 128  # a name, @ and a version are 74
_FIELDS_WITH_RULES = 5  # all but the name
_WORDS = {"TAG": "tags", "SQL92": "sql", "CLASS": "where"}


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A parsed tag expression: ``*``, or the tags and their hash codes (signed 32-bit)."""

    sub_string: str
    tags_set: frozenset[str]
    code_set: frozenset[int]


def parse(sub_string: str | None) -> SubscriptionData:
    """Parse a tag expression; None and the empty text mean ``*``.

    Raises:
        FilterSyntaxError: it has only separators, or is too long.
    """
    if not sub_string or sub_string == _ALL:
        return SubscriptionData(_ALL, frozenset(), frozenset())
    _check_length(sub_string)
    pieces = sub_string.split(_SEPARATOR)
    while pieces and not pieces[-1]:  # String.split drops empty pieces at the end
        pieces.pop()
    if not pieces:
        raise FilterSyntaxError(
            "a tag expression needs a tag between its separators", sub_string, 0, len(sub_string)
        )
    tags = frozenset(tag for piece in pieces if (tag := piece.strip(JAVA_BLANKS)))
    return SubscriptionData(sub_string, tags, frozenset(map(java_hash_code, tags)))


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter as text: its kind, and a tag expression, an SQL92 expression or an import path.

    - ``on_error``: the group's policy for a message on which a predicate fails: stop before it,
      skip it, or deliver it. SQL92 that fails on a message never matches it.
    - ``dialect`` is the SQL dialect, and ``rules`` the version of that dialect's rules (see
      sql92/dialect.py). For SQL92, None becomes the default dialect or its current rules; the
      other kinds keep None.
    - ``named`` is the named filter that it is, as ``large@2``; empty if it has no name.

    Two subscriptions are equal when they are the same filter, dialect and rules included: that is a
    filter's identity, in a group, for a bitmap and in a checkpoint. The name is not part of it. To
    store one, keep :meth:`to_json` and compare the result of :meth:`from_json`. The constructor
    checks only types; :meth:`check` checks the expression.
    """

    expression_type: ExpressionType
    expression: str
    on_error: ErrorPolicy = "stop"
    dialect: Dialect | None = None
    rules: int | None = None
    named: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.expression_type not in get_args(ExpressionType):
            raise ConfigError(
                f"filter type {self.expression_type!r} is not one of TAG, SQL92 and CLASS"
            )
        if not isinstance(self.expression, str):
            raise ConfigError(f"a filter must be a string, not {self.expression!r:.80}")
        if self.on_error not in get_args(ErrorPolicy):
            raise ConfigError(f"on_filter_error is {self.on_error!r}, not stop, skip or deliver")
        if not isinstance(self.named, str) or len(self.named) > _NAMED_MAX_CHARS:
            raise ConfigError(f"{self.named!r:.80} is not the name of a filter, such as large@2")
        if self.on_error != "stop" and self.expression_type != "CLASS":
            raise ConfigError(
                f"on_filter_error={self.on_error!r} is for predicates (where); a message on which "
                "SQL fails does not match, and tags cannot fail: leave it out"
            )
        if self.expression_type != "SQL92":
            if self.dialect is not None:
                raise ConfigError(f"dialect={self.dialect!r} is for SQL expressions: leave it out")
            return
        dialect = DEFAULT_DIALECT if self.dialect is None else self.dialect
        now = current_rules(dialect)
        object.__setattr__(self, "dialect", dialect)  # frozen from here on
        object.__setattr__(
            self, "rules", now if self.rules is None else check_rules(dialect, self.rules)
        )

    @classmethod
    def tags(cls, expression: str) -> Subscription:
        """Return a subscription by tags: ``"*"``, or ``"pay || order"``."""
        return cls("TAG", expression)

    @classmethod
    def sql(cls, expression: str, dialect: Dialect | None = None) -> Subscription:
        """Return a subscription by an SQL92 expression over the properties."""
        return cls("SQL92", expression, dialect=dialect)

    @classmethod
    def where(
        cls, predicate: str | Callable[[Any], Any], on_error: ErrorPolicy = "stop"
    ) -> Subscription:
        """Return a subscription by a predicate: ``"module:callable"``, or a top-level function."""
        path = predicate if isinstance(predicate, str) else predicate_path(predicate)
        return cls("CLASS", path, on_error)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Subscription:
        """Return the subscription that :meth:`to_json` wrote; raise ConfigError for anything else.

        SQL without a dialect is RocketMQ's: it was stored before there was another default.
        """
        try:
            kind, expression = value["expressionType"], value["expression"]
        except (KeyError, TypeError):
            raise ConfigError(
                f"{value!r:.80} is not a subscription; it needs expressionType and expression"
            ) from None
        policy = cast("ErrorPolicy", value.get("onFilterError", "stop"))
        named = value.get("namedFilter", "")
        if kind != "SQL92":
            dialect = cast("Dialect | None", value.get("dialect"))
            return cls(  # it checks them
                cast("ExpressionType", kind), expression, policy, dialect, named=named
            )
        dialect = cast("Dialect", value.get("dialect", "rocketmq"))
        rules = value.get("dialectRules", 1)
        return cls("SQL92", expression, policy, dialect, rules, named)

    def to_json(self) -> dict[str, Any]:
        """Return the subscription as JSON, for :meth:`from_json` of this program or a later one."""
        value: dict[str, Any] = {
            "expressionType": self.expression_type,
            "expression": self.expression,
        }
        if self.on_error != "stop":
            value["onFilterError"] = self.on_error
        # A key is left out where its absence means the same, as in files of before the key existed.
        if self.dialect not in (None, "rocketmq"):
            value["dialect"] = self.dialect
        if self.rules not in (None, 1):
            value["dialectRules"] = self.rules
        if self.named:
            value["namedFilter"] = self.named
        return value

    def check(self) -> None:
        """Parse the expression, or import the predicate, now.

        Raises:
            FilterSyntaxError: the expression does not parse.
            PredicateError: the predicate cannot be imported.
        """
        self.check_text()
        if self.expression_type == "CLASS":
            load_predicate(self.expression)

    def check_text(self) -> None:
        """Check everything except the predicate's import, which only the node can do.

        Raises:
            FilterSyntaxError: the expression does not parse.
            PredicateError: the predicate's path is malformed.
        """
        _check_length(self.expression)
        if self.expression_type == "TAG":
            parse(self.expression)
        elif self.expression_type == "SQL92":
            self.compiled()
        else:
            check_predicate(self.expression)

    def compiled(self) -> CompiledExpression:
        """Return the compiled SQL expression; raise :class:`FilterSyntaxError`."""
        assert self.dialect is not None, "only SQL is compiled"
        return compile_expression(self.expression, self.dialect, self.rules)

    @property
    def exact_tags(self) -> list[str]:
        """The tags of which a message must have one, sorted; empty if none is required."""
        return sorted(parse(self.expression).tags_set) if self.expression_type == "TAG" else []

    @property
    def matches_all(self) -> bool:
        """Whether every message matches, so that there is nothing to filter."""
        return self.expression_type == "TAG" and parse(self.expression).sub_string == _ALL

    @property
    def dialect_words(self) -> str:
        """The dialect for people, with its rules unless they are current; "" for other kinds."""
        if self.dialect is None or self.rules is None:
            return ""
        is_current = self.rules == current_rules(self.dialect)
        return self.dialect if is_current else f"{self.dialect}, rules {self.rules}"

    def options(self) -> list[str]:
        """Return the command-line options that mean this subscription."""
        if self.named:
            return ["--filter", self.named]
        given = [f"--{_WORDS[self.expression_type]}", self.expression]
        if self.on_error != "stop":
            given += ["--on-filter-error", self.on_error]
        if self.dialect not in (None, DEFAULT_DIALECT):
            given += ["--dialect", self.dialect]
        return given

    def __str__(self) -> str:
        policy = "" if self.on_error == "stop" else f" (on an error: {self.on_error})"
        words = self.dialect_words
        dialect = f" (dialect: {words})" if words not in ("", DEFAULT_DIALECT) else ""
        name = f" (filter {self.named})" if self.named else ""
        return f"{_WORDS[self.expression_type]} {self.expression!r}{policy}{dialect}{name}"


EVERYTHING = Subscription.tags(_ALL)
"""The subscription without a filter."""


def describe_difference(before: Subscription, after: Subscription) -> str:
    """Describe in words how *after* differs from *before*; both parse.

    Tags are compared one by one; two texts of another kind from their first difference.
    """
    if before.expression_type == after.expression_type == "TAG":
        old, new = (_tags_of(each) for each in (before, after))
        parts = {"added": new - old, "removed": old - new, "kept": old & new}
        return "; ".join(
            f"{word}: {', '.join(sorted(tags)) if tags else 'none'}" for word, tags in parts.items()
        )
    if before.expression_type != after.expression_type:
        return f"{before.expression_type} before, {after.expression_type} now"
    old_text, new_text = before.expression, after.expression
    if old_text == new_text:
        return _same_text(before, after)
    pairs = enumerate(zip(old_text, new_text, strict=False))
    at = next((place for place, (a, b) in pairs if a != b), min(len(old_text), len(new_text)))
    shown = (repr(text[at : at + _SHOWN_CHARS]) for text in (old_text, new_text))
    return f"from character {at + 1} on: {' before, '.join(shown)} now"


def _same_text(before: Subscription, after: Subscription) -> str:
    if before.on_error != after.on_error:
        return f"the same predicate; on an error: {before.on_error} before, {after.on_error} now"
    if before == after:
        return "no difference"
    words = f"the same text, but dialect {before.dialect_words} before, {after.dialect_words} now"
    is_default = "rocketmq" in (before.dialect, after.dialect)
    return f'{words}; earlier releases used dialect="rocketmq"' if is_default else words


def _restore(subscription: Subscription, state: list[Any]) -> None:
    """Restore the state from :mod:`pickle`; a member of an earlier release sends no rules."""
    for each, value in zip(fields(subscription), state, strict=False):
        object.__setattr__(subscription, each.name, value)
    if len(state) < len(fields(subscription)):
        object.__setattr__(subscription, "named", "")
    if len(state) < _FIELDS_WITH_RULES:
        is_sql = subscription.expression_type == "SQL92"
        object.__setattr__(subscription, "rules", 1 if is_sql else None)
        if not is_sql:
            object.__setattr__(subscription, "dialect", None)


# Not in the class, where dataclasses of Python 3.11.0 to 3.11.3 replace it.
Subscription.__setstate__ = _restore  # type: ignore[attr-defined]


def _tags_of(subscription: Subscription) -> frozenset[str]:
    return parse(subscription.expression).tags_set or frozenset({"* (all)"})


def _check_length(expression: str) -> None:
    if len(expression) > EXPRESSION_MAX_CHARS:
        raise FilterSyntaxError(
            f"a filter has at most {EXPRESSION_MAX_CHARS} characters, this one {len(expression)}",
            expression[:_SHOWN_CHARS],
            0,
            _SHOWN_CHARS,
        )


def matches_code(subscription: SubscriptionData, tags_code: int | None) -> bool:
    """Return whether a ConsumeQueue entry may match; None, an unreadable code, always may."""
    if tags_code is None or subscription.sub_string == "*":
        return True
    return signed_32(tags_code) in subscription.code_set


def matches_exactly(subscription: SubscriptionData, tags: str | None) -> bool:
    """Return whether the subscription has the message's tag; always True if it names no tags."""
    return not subscription.tags_set or tags in subscription.tags_set
