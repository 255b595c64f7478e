"""Filters as JSON records: how one was parsed, with warnings, or where it does not parse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.broker.filtering.filter_advice import SAMPLE_COUNT, advise_filter
from rocketray.broker.named_filters.filter_book import NamedFilter
from rocketray.broker.named_filters.named_filters_api import FilterUse
from rocketray.errors import FilterSyntaxError
from rocketray.filters.sql92 import to_sql
from rocketray.filters.sql92.advice import Advice
from rocketray.filters.sql92.nodes import property_names
from rocketray.filters.subscription import Subscription, parse


@dataclass(frozen=True, slots=True)
class CheckedFilter:
    """A filter that parses: its facts for programs, its lines for users, and warnings."""

    expression: str
    facts: dict[str, Any]
    lines: tuple[str, ...]
    warnings: tuple[Advice, ...]

    def record(self) -> dict[str, Any]:
        valid = {"expression": self.expression, "valid": True, **self.facts}
        return {**valid, "warnings": warning_records(self.warnings), "error": None}


def checked_filter(
    subscription: Subscription,
    data: Path | None = None,
    topic: str | None = None,
    count: int = SAMPLE_COUNT,
) -> CheckedFilter:
    """Check a filter, with a topic also against its newest *count* messages.

    Of a predicate nothing is known before it runs.

    Raises:
        FilterSyntaxError: it does not parse. StoreError: there is no such topic.
    """
    checked = {"SQL92": _checked_sql, "TAG": _checked_tags, "CLASS": _checked_predicate}
    facts, lines = checked[subscription.expression_type](subscription)
    warnings = advise_filter(subscription, data, topic, count)
    return CheckedFilter(subscription.expression, facts, lines, (*warnings,))


def warning_records(warnings: Iterable[Advice]) -> list[dict[str, str]]:
    return [
        {"code": each.code.value, "subject": each.subject, "message": each.sentence}
        for each in warnings
    ]


def named_filter_record(one: NamedFilter, uses: Iterable[FilterUse]) -> dict[str, Any]:
    """Return a version of a named filter as JSON, with the groups that use the filter."""
    groups = [
        {
            "group": use.group,
            "version": use.version,
            "members": use.members,
            "isComing": use.is_coming,
        }
        for use in uses
    ]
    return {**one.to_json(), "groups": groups}


def refused_filter(error: FilterSyntaxError) -> dict[str, Any]:
    """Return a filter that does not parse as JSON: the place and the reason."""
    found = {"message": error.reason, "start": error.start, "end": error.end}
    return {"expression": error.expression, "valid": False, "error": found}


def _checked_tags(subscription: Subscription) -> tuple[dict[str, Any], tuple[str, ...]]:
    parsed = parse(subscription.expression)
    tags = sorted(parsed.tags_set)
    everything = "all messages" if parsed.sub_string == "*" else "none"
    return {"tags": tags}, (f"tags: {', '.join(map(repr, tags)) or everything}",)


def _checked_predicate(subscription: Subscription) -> tuple[dict[str, Any], tuple[str, ...]]:
    path = subscription.expression
    return {"predicate": path}, (f"predicate {path}: what it does is known only when it runs",)


def _checked_sql(subscription: Subscription) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the facts about an SQL92 expression; the last line stands below the warnings."""
    tree = subscription.compiled().tree
    facts = {
        "dialect": subscription.dialect,
        "dialectRules": subscription.rules,
        "canonical": to_sql(tree),
        "properties": sorted(property_names(tree)),
    }
    return facts, (to_sql(tree), f"dialect: {subscription.dialect_words}")
