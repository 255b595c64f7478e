"""Options of commands that look messages up: a range of store time, and a maximum number."""

from __future__ import annotations

import re
import time
from typing import Annotated, Literal

import typer

from rocketray.cli.terminal.quantities import parse_delay
from rocketray.cli.terminal.usage import usage_error
from rocketray.views.lookups import TIME_MAX_MS, bound_of, time_ms_of

from .completions import complete_topics

MAX_DEFAULT = 64  # as RocketMQ's maxMsgsNumBatch
_AGO = re.compile(r"\d{1,18} ?(ms|s|m|h|d)", re.ASCII)
_MAX_LIMIT = 100_000  # all are in memory, with their bodies, until they are printed


parse_time_ms = usage_error()(time_ms_of)
parse_bound = usage_error()(bound_of)


def parse_since(text: str) -> int:
    """Return milliseconds since 1970 of a time, or of so long ago: ``10m``, ``2h``, ``3d``.

    Raises:
        typer.BadParameter: *text* is neither.
    """
    if _AGO.fullmatch(text) is None:
        return parse_time_ms(text, "a time, nor one like 10m, 2h or 3d")
    return int(time.time() * 1000) - parse_delay(text)


def span_of(begin_ms: int | None, end_ms: int | None) -> tuple[int, int]:
    """Return a span's first and last time; raise :class:`typer.BadParameter` if it is empty."""
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise typer.BadParameter("--from is later than --to; swap them")
    return begin_ms or 0, TIME_MAX_MS if end_ms is None else end_ms


def parse_place(text: str) -> Literal["earliest", "latest"] | int:
    """Return a position in a queue: its begin, its end, or a time; raises as a time does."""
    if text == "earliest":
        return "earliest"
    return "latest" if text == "latest" else parse_time_ms(text, "earliest, latest or a time")


BeginOption = Annotated[
    int | None,
    typer.Option(
        "--from", parser=parse_time_ms, metavar="TIME", help="Stored at that time or later."
    ),
]
EndOption = Annotated[
    int | None,
    typer.Option(
        "--to", parser=parse_time_ms, metavar="TIME", help="Stored at that time or earlier."
    ),
]
OnlyTopicOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC", help="Only messages of this topic.", autocompletion=complete_topics
    ),
]
MaxOption = Annotated[
    int,
    typer.Option("--max", metavar="N", min=1, max=_MAX_LIMIT, help="Maximum number of messages."),
]
