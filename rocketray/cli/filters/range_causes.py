"""``rocketray explain`` without a message: the causes of a range of a topic's messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.lookup_options import parse_bound
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import TextTable, as_time, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.broker.filtering.preview import PreviewRange
    from rocketray.message import StoredMessage
    from rocketray.services.explaining.cause_table import CauseRow, CauseTable
    from rocketray.views.lookups import Bound

_TOLD_S = 2.0
_COLUMNS = ("cause", "messages", "example", "place", "stored", "meaning")


def print_causes(
    common: CommonOptions,
    group: str,
    topic: str,
    within: tuple[str | None, str | None, int | None, int],
) -> None:
    """Print the table for the messages *within* two bounds and a queue, at most so many.

    Ends with 1 if there is none.
    """
    chosen = _range_of(*within)
    with ask(common.data) as node:
        from rocketray.services.explaining.cause_table import explain_range  # NumPy and Arrow

        found = explain_range(node, group, topic, chosen, tell=_Teller().tell)
    common.emit(_fields(group, topic, found), _shown(found))
    if not (found.explained or found.absent):
        raise typer.Exit(1)


def _range_of(
    begin_text: str | None, end_text: str | None, queue_id: int | None, limit: int
) -> PreviewRange:
    from rocketray.broker.filtering.preview import PreviewRange  # NumPy and Arrow

    begin = None if begin_text is None else parse_bound(begin_text)
    end = None if end_text is None else parse_bound(end_text)
    if begin and end and begin.is_time == end.is_time and begin.number > end.number:
        raise typer.BadParameter("--from is later than --to; swap them")
    return PreviewRange(
        _number(begin, is_time=False) or 0,
        _number(end, is_time=False),
        _number(begin, is_time=True),
        _number(end, is_time=True),
        queue_id,
        limit,
    )


def _number(bound: Bound | None, *, is_time: bool) -> int | None:
    return bound.number if bound is not None and bound.is_time == is_time else None


class _Teller:
    """Prints every two seconds how far it is; the first block may have to be compiled."""

    def __init__(self) -> None:
        self._told_s: float | None = None

    def tell(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if self._told_s is None:
            self._told_s = now_s
        elif now_s - self._told_s >= _TOLD_S:
            self._told_s = now_s
            progress(f"explained {done:,} of {counted(total, 'message')}")


def _fields(group: str, topic: str, found: CauseTable) -> dict[str, Any]:
    return {
        "group": group,
        "topic": topic,
        "held": found.held,
        "explained": found.explained,
        "causes": [*map(_cause_fields, found.rows)],
        "absent": found.absent,
        "absentCauses": [*map(_cause_fields, found.absent_rows)],
        "notes": list(found.notes),
    }


def _cause_fields(row: CauseRow) -> dict[str, Any]:
    return {
        "cause": row.cause.value,
        "meaning": row.cause.meaning,
        "count": row.count,
        "example": _example(row.example),
    }


def _example(message: StoredMessage) -> dict[str, Any]:
    return {
        "offsetMsgId": message.offset_message_id,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp_ms,
    }


def _shown(found: CauseTable) -> Iterator[str | TextTable]:
    table = TextTable(_COLUMNS, map(_row, found.rows))
    yield table if found.rows else "no message is in this range"
    yield from found.notes
    if found.absent_rows:
        yield TextTable(_COLUMNS, map(_row, found.absent_rows))


def _row(row: CauseRow) -> tuple[object, ...]:
    example = row.example
    place = f"{example.topic}/{example.queue_id}, offset {example.queue_offset}"
    stored = as_time(example.store_timestamp_ms)
    cause = row.cause
    return (cause.value, row.count, example.offset_message_id, place, stored, cause.meaning)
