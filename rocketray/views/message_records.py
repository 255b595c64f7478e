"""Messages, dead letters and halves as JSON records, and the verdicts of filters on messages."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from rocketray.base.marks import FAILURE_REASON, KEYS, mark
from rocketray.message import StoredMessage

if TYPE_CHECKING:
    from rocketray.broker.filtering.filter_diff import Difference, FilterDiff
    from rocketray.broker.filtering.seen_messages import SeenMessage
    from rocketray.filters.subscription import Subscription
    from rocketray.filters.verdict_values import ExplainStep
    from rocketray.messaging.api.system_api import UndecidedHalf


def to_json(message: StoredMessage) -> dict[str, Any]:
    """Return *message* as a record.

    The keys are topic, queueId, queueOffset, commitLogOffset, tags, keys, properties, body,
    storeTimestamp and offsetMsgId; ``body`` is base64, and times are milliseconds.
    """
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "tags": message.tags,
        "keys": message.properties.get(KEYS),
        "properties": dict(message.properties),
        "body": base64.b64encode(message.body).decode("ascii"),
        "storeTimestamp": message.store_timestamp_ms,
        "offsetMsgId": message.offset_message_id,
    }


def letter_record(letter: StoredMessage, *, is_redriven: bool) -> dict[str, Any]:
    """Return a dead letter, with its attempts, its origin and the error of the last attempt."""
    from rocketray.broker.retries.retry_records import (  # noqa: PLC0415 - not needed for --help
        origin_of,
        topic_of,
    )

    return {
        **to_json(letter),
        "attempts": letter.reconsume_times,
        "originTopic": topic_of(letter),
        "originMsgId": origin_of(letter),
        "redriven": is_redriven,
        "reason": mark(letter, FAILURE_REASON),
    }


def half_record(half: UndecidedHalf) -> dict[str, Any]:
    return {
        "group": half.group,
        "msgId": half.unique_key,
        "halfQueue": half.queue_id,
        "halfOffset": half.queue_offset,
        "storeTimestamp": half.stored_ms,
        "checks": half.checks,
    }


def printable(text: str, *, also: str = "") -> str:
    """Return *text* without control sequences of terminals; the characters of *also* stay."""
    return "".join(char if char.isprintable() or char in also else "·" for char in text)


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
