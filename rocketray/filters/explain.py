"""What a filter makes of one message, look by look: for people who ask why it was not delivered.

The looks are those of a delivery, in their order: the tags code in the queue entry, the SQL92
expression or the predicate on the record, the tag's text at the consumer. The first that says no
is the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rocketray.errors import PredicateError

from .message_filter import RecordView
from .sql92 import compile_expression
from .sql92.trace import Outcome, trace
from .subscription import Subscription, parse
from .tag import matches_code, matches_exactly

__all__ = ["ExplainStep", "FilterReason", "FilterVerdict", "explain_filter"]

AskPredicate = Callable[[Subscription, Any], bool]


class FilterReason(Enum):
    """Why a filter lets a message pass or not."""

    MATCHED = "matched"
    TAG_MISMATCH = "tag_mismatch"
    TAG_COLLISION = "tag_collision"
    SQL_FALSE = "sql_false"
    SQL_NULL = "sql_null"
    SQL_ERROR = "sql_error"
    CLASS_FALSE = "class_false"
    CLASS_ERROR = "class_error"


_SQL_REASONS = {
    Outcome.TRUE: FilterReason.MATCHED,
    Outcome.FALSE: FilterReason.SQL_FALSE,
    Outcome.NULL: FilterReason.SQL_NULL,
    Outcome.ERROR: FilterReason.SQL_ERROR,
}
_SQL_SENTENCES = {
    Outcome.TRUE: "it matches",
    Outcome.FALSE: "no match",
    Outcome.NULL: "no match, because a property is absent or not comparable",
}


@dataclass(frozen=True, slots=True)
class ExplainStep:
    """One look. ``result`` is a word for programs, ``detail`` a sentence for people.

    ``depth`` is above 0 for the parts of an SQL92 expression.
    """

    stage: str
    result: str
    detail: str
    depth: int = 0
    values: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The reason, and the looks that led to it."""

    reason: FilterReason
    steps: tuple[ExplainStep, ...]


def explain_filter(
    subscription: Subscription,
    message: RecordView,
    tags_code: int | None,
    ask_predicate: AskPredicate,
) -> FilterVerdict:
    """Look at *message* as a delivery would.

    Args:
        subscription: the filter.
        message: the record.
        tags_code: the code in its queue entry; None for one that cannot be read.
        ask_predicate: answers for a class filter; it may raise :class:`PredicateError`.
    """
    if subscription.expression_type == "SQL92":
        return _explain_sql(subscription, message)
    if subscription.expression_type == "CLASS":
        return _explain_class(subscription, message, ask_predicate)
    return _explain_tags(subscription.expression, message.tags, tags_code)


def _explain_tags(expression: str, tag: str | None, tags_code: int | None) -> FilterVerdict:
    data = parse(expression)
    if data.sub_string == "*":
        step = ExplainStep("tag code", "all", "the group takes every tag")
        return FilterVerdict(FilterReason.MATCHED, (step,))
    shown = "no tag" if tag is None else f"tag {tag!r}"
    if not matches_code(data, tags_code):
        detail = f"the message has {shown} (code {tags_code}), the group wants {expression}"
        step = ExplainStep("tag code", "differs", detail)
        return FilterVerdict(FilterReason.TAG_MISMATCH, (step,))
    code = ExplainStep("tag code", "equal", f"code {tags_code} is one that the group wants")
    if matches_exactly(data, tag):
        text = ExplainStep("tag text", "equal", f"{shown} is one that the group wants")
        return FilterVerdict(FilterReason.MATCHED, (code, text))
    detail = f"{shown} only has the same hash code as a tag of {expression}"
    collided = ExplainStep("tag text", "collided", detail)
    return FilterVerdict(FilterReason.TAG_COLLISION, (code, collided))


def _explain_sql(subscription: Subscription, message: RecordView) -> FilterVerdict:
    steps = []
    compiled = compile_expression(subscription.expression, subscription.dialect)
    parts = trace(compiled.tree, message.properties)
    for part in parts:
        sentence = part.error or ("" if part.depth else _SQL_SENTENCES[part.outcome])
        is_named = not sentence or sentence.startswith(part.expression)  # as an error's own is
        detail = (sentence or part.expression) if is_named else f"{part.expression}: {sentence}"
        steps.append(ExplainStep("sql", part.outcome.value, detail, part.depth, part.values))
    return FilterVerdict(_SQL_REASONS[parts[0].outcome], tuple(steps))


def _explain_class(
    subscription: Subscription, message: RecordView, ask_predicate: AskPredicate
) -> FilterVerdict:
    name = subscription.expression
    try:
        matched = ask_predicate(subscription, message)
    except PredicateError as error:
        step = ExplainStep("class", "error", str(error))
        return FilterVerdict(FilterReason.CLASS_ERROR, (step,))
    if matched:
        step = ExplainStep("class", "true", f"{name} says yes")
        return FilterVerdict(FilterReason.MATCHED, (step,))
    step = ExplainStep("class", "false", f"{name} says no")
    return FilterVerdict(FilterReason.CLASS_FALSE, (step,))
