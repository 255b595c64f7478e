"""Verdicts of filters as texts and records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .message_records import to_json

if TYPE_CHECKING:
    from rocketray.broker.filtering.filter_diff import Difference, FilterDiff
    from rocketray.broker.filtering.seen_messages import SeenMessage
    from rocketray.filters.subscription import Subscription
    from rocketray.filters.verdict_values import ExplainStep


def step_values(step: ExplainStep) -> str:
    """Return the properties that a step names, and their values; "" for none."""
    shown = [
        f"{name} is absent" if value is None else f"{name} = {value!r}"
        for name, value in step.values.items()
    ]
    return f"  ({', '.join(shown)})" if shown else ""


def why_of(seen: SeenMessage) -> str | None:
    """Return the part of the filter that rejected a message; None for a match."""
    return None if seen.step is None else f"{seen.step.detail}{step_values(seen.step)}"


def seen_record(seen: SeenMessage) -> dict[str, Any]:
    """Return a message of a tail: as other commands print it, and ``verdict`` and ``why``."""
    return {**to_json(seen.message), "verdict": seen.reason.value, "why": why_of(seen)}


def diff_record(filters: tuple[Subscription, Subscription], found: FilterDiff) -> dict[str, Any]:
    """Return a comparison of two filters, the old one and the new one."""
    old, new = filters
    return {
        "old": old.to_json(),
        "new": new.to_json(),
        "held": found.held,
        "scanned": found.scanned,
        "both": found.both,
        "onlyOld": found.only_old,
        "onlyNew": found.only_new,
        "oldFailed": found.old_failed,
        "newFailed": found.new_failed,
        "lost": [*map(_difference, found.lost)],
        "gained": [*map(_difference, found.gained)],
    }


def _difference(one: Difference) -> dict[str, Any]:
    return {**to_json(one.message), "oldVerdict": one.old.value, "newVerdict": one.new.value}
