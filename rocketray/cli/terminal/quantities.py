"""Times, sizes and modes that a user typed; an invalid one ends the command with code 2."""

from __future__ import annotations

import re

import typer

from rocketray.base import units
from rocketray.base.names import QueuesPerProcess, check_queues_per_process

from .usage import usage_error

parse_duration = usage_error()(units.parse_duration)
parse_delay = usage_error()(units.parse_delay)
parse_bytes = usage_error()(units.parse_bytes)


def parse_rate(text: str) -> int:
    """Return bytes a second, 0 for none; raises :class:`typer.BadParameter`."""
    found = 0 if text == "0" else parse_bytes(text)
    if found is None:
        raise typer.BadParameter("give a size like 1MiB, for each second, or 0")
    return found


@usage_error(hint="--queues-per-process")
def parse_queues_per_process(text: str | None) -> QueuesPerProcess:
    """Return a number of queues, or ``shared``; None without a text."""
    return check_queues_per_process(int(text) if text and text.isdecimal() else text)


def parse_mode(text: str) -> int:
    """Return permissions as chmod takes them: ``750``; raises :class:`typer.BadParameter`."""
    if re.fullmatch("0?[0-7]{3}", text, re.ASCII) is None:
        raise typer.BadParameter(f"mode {text!r} is not three octal digits like 700 or 750")
    return int(text, 8)
