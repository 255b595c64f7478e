"""The decision of a filter on one message, step by step, to explain why it was not delivered.

The steps are those of a delivery, in order:
1. the tags code in the queue entry, or the bitmap beside it,
2. the SQL92 expression or the predicate, on the record,
3. the tag's text, at the consumer.

The first step that rejects is the reason. After a bitmap that rejects, the expression is evaluated
as well, to show its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocketray.errors import PredicateError

from .message_filter import RecordView
from .sql92.outcomes import Outcome
from .sql92.trace import trace
from .subscription import Subscription, matches_code, matches_exactly, parse
from .verdict_values import BitmapFacts, ExplainStep, FilterReason, FilterVerdict

AskPredicate = Callable[[Subscription, Any], bool]


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


def explain_filter(
    subscription: Subscription,
    message: RecordView,
    tags_code: int | None,
    ask_predicate: AskPredicate,
    bitmap: BitmapFacts | None = None,
) -> FilterVerdict:
    """Explain the decision on *message* as a delivery would make it.

    Args:
        subscription: the filter.
        message: the record.
        tags_code: the code in its queue entry; None for an unreadable one.
        ask_predicate: decides for a class filter; it may raise :class:`PredicateError`.
        bitmap: the bitmap beside its queue entry; None if none are kept.
    """
    if subscription.expression_type == "SQL92":
        return _explain_sql(subscription, message, bitmap)
    if subscription.expression_type == "CLASS":
        return _explain_class(subscription, message, ask_predicate)
    return _explain_tags(subscription.expression, message.tags, tags_code)


def deciding_step(verdict: FilterVerdict) -> ExplainStep:
    """Return the step that rejected a message; of SQL92 the smallest part that alone decided it."""
    steps = verdict.steps
    place = next((at for at, step in enumerate(steps) if step.stage == "sql"), len(steps) - 1)
    while True:
        same = [at for at in _operands(steps, place) if steps[at].result == steps[place].result]
        if len(same) != 1:
            return steps[place]
        place = same[0]


def _operands(steps: Sequence[ExplainStep], place: int) -> Iterator[int]:
    """Yield the places of the steps one below that at *place*."""
    depth = steps[place].depth
    for at in range(place + 1, len(steps)):
        if steps[at].depth <= depth:
            return
        if steps[at].depth == depth + 1:
            yield at


def _explain_tags(expression: str, tag: str | None, tags_code: int | None) -> FilterVerdict:
    data = parse(expression)
    if data.sub_string == "*":
        step = ExplainStep("tag code", "all", "the group subscribes to every tag")
        return FilterVerdict(FilterReason.MATCHED, (step,))
    shown = "no tag" if tag is None else f"tag {tag!r}"
    if not matches_code(data, tags_code):
        detail = f"the message has {shown} (code {tags_code}), the group subscribes to {expression}"
        step = ExplainStep("tag code", "differs", detail)
        return FilterVerdict(FilterReason.TAG_MISMATCH, (step,))
    code = ExplainStep("tag code", "equal", f"code {tags_code} is one that the group subscribes to")
    if matches_exactly(data, tag):
        text = ExplainStep("tag text", "equal", f"{shown} is one that the group subscribes to")
        return FilterVerdict(FilterReason.MATCHED, (code, text))
    detail = f"{shown} only has the same hash code as a tag of {expression}"
    collided = ExplainStep("tag text", "collided", detail)
    return FilterVerdict(FilterReason.TAG_COLLISION, (code, collided))


def _explain_bitmap(subscription: Subscription, facts: BitmapFacts) -> ExplainStep:
    known = facts.registered
    if facts.bitmap is None:
        return ExplainStep("bloom", "no bitmap", "its queue entry has no bitmap")
    if known is None or known.subscription != subscription:
        return ExplainStep("bloom", "unknown", "its bitmap has no bits for the group's expression")
    if not known.is_message_in_live(facts.store_timestamp_ms):
        detail = "its bitmap may be older than the group's expression"
        return ExplainStep("bloom", "too early", detail)
    bits = ", ".join(map(str, sorted(set(known.bit_positions))))
    if known.may_match(facts.bitmap):
        return ExplainStep("bloom", "may match", f"its bitmap lets it pass, by bits {bits}")
    detail = f"its bitmap rejects it, because bits {bits} are not all set: its record is not read"
    return ExplainStep("bloom", "rejected", detail)


def _explain_sql(
    subscription: Subscription, message: RecordView, facts: BitmapFacts | None
) -> FilterVerdict:
    steps = [_explain_bitmap(subscription, facts)] if facts else []
    ruled_out = any(step.result == "rejected" for step in steps)
    compiled = subscription.compiled()
    parts = trace(compiled.tree, message.properties)
    for part in parts:
        sentence = part.error or ("" if part.depth else _SQL_SENTENCES[part.outcome])
        is_named = not sentence or sentence.startswith(part.expression)  # as an error's own does
        detail = (sentence or part.expression) if is_named else f"{part.expression}: {sentence}"
        steps.append(ExplainStep("sql", part.outcome.value, detail, part.depth, part.values))
    reason = _SQL_REASONS[parts[0].outcome]
    if reason is FilterReason.MATCHED and ruled_out:
        reason = FilterReason.BLOOM_WRONG
        detail = (
            "the bitmap is damaged; stop the node and remove config/consumerFilter.json in the "
            "shard's directory, so that its existing bitmaps are not used any more"
        )
        steps.append(ExplainStep("bloom", "wrong", detail))
    return FilterVerdict(reason, tuple(steps))


def _explain_class(
    subscription: Subscription, message: RecordView, ask_predicate: AskPredicate
) -> FilterVerdict:
    name = subscription.expression
    try:
        matched = ask_predicate(subscription, message)
    except PredicateError as error:
        if subscription.on_error == "deliver":
            detail = f"{error}; the group asks for messages on which its predicate fails"
            return FilterVerdict(FilterReason.MATCHED, (ExplainStep("class", "error", detail),))
        step = ExplainStep("class", "error", str(error))
        return FilterVerdict(FilterReason.CLASS_ERROR, (step,))
    if matched:
        step = ExplainStep("class", "true", f"{name} returned True")
        return FilterVerdict(FilterReason.MATCHED, (step,))
    step = ExplainStep("class", "false", f"{name} returned False")
    return FilterVerdict(FilterReason.CLASS_FALSE, (step,))
