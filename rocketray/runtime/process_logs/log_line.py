"""The lines of a log: time, level, logger, the message in hand, and a text.

    2026-11-27 10:15:41,123 ERROR shop [Orders queue 0 offset 17 id 7F00…]: no such customer
    Traceback (most recent call last):
      …

The place in brackets is that of the message that a handler had; a list has ``offset 17 to 26``.
What a handler printed has the level ``PRINT`` and the name of its agent. Times are local. Lines
without a time belong to the one above: they are a traceback, or a library's own output.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

PRINT = "PRINT"
"""The level of a printed line."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(place)s: %(message)s"
_LINE = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ([A-Z]+) ([^\s\[]\S*?)"
    r"(?: \[(\S+) queue (\d{1,9}) offset (\d{1,19})(?: to (\d{1,19}))?(?: id (\S+))?\])?: (.*)",
    re.ASCII | re.DOTALL,
)
_OF_RAY = (":actor_name:", ":task_name:", ":job_id:")  # marks for Ray's own reader
_LINES_MAX = 2000
"""Of one entry; a library's output without times begins a new one then."""


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message is; a list of one queue reaches up to ``last_queue_offset``."""

    topic: str
    queue_id: int
    queue_offset: int
    last_queue_offset: int | None = None
    message_id: str | None = None

    def position(self) -> str:
        """Return topic, queue and offset for a sentence of a log."""
        return f"at topic {self.topic} queue {self.queue_id} offset {self.queue_offset}"

    def __str__(self) -> str:
        text = f"{self.topic} queue {self.queue_id} offset {self.queue_offset}"
        if self.last_queue_offset is not None:
            text += f" to {self.last_queue_offset}"
        return text if self.message_id is None else f"{text} id {self.message_id}"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of a log: its lines as they were written, and what they say.

    ``time_ms`` is in ms since 1970, None above the first line that has a time.
    """

    written: str
    time_ms: int | None = None
    level: str | None = None
    logger: str | None = None
    place: MessagePlace | None = None
    text: str = ""

    @classmethod
    def parse(cls, written: str) -> LogLine:
        """Return what one line says; one without a time is text alone."""
        found = _LINE.fullmatch(written)
        if found is None:
            return cls(written, text=written)
        when, ms, level, logger, topic, queue, offset, last, message_id, text = found.groups()
        try:
            time_ms = int(datetime.fromisoformat(when).timestamp()) * 1000 + int(ms)
        except (ValueError, OverflowError, OSError):
            return cls(written, text=written)
        place = None
        if topic is not None:
            until = None if last is None else int(last)
            place = MessagePlace(topic, int(queue), int(offset), until, message_id)
        return cls(written, time_ms, level, logger, place, text)


def formatter() -> logging.Formatter:
    """Return the format of these lines; a record's attribute ``place`` is the text in brackets."""
    return logging.Formatter(_FORMAT, defaults={"place": ""})


def place_extra(place: MessagePlace | None) -> dict[str, str]:
    """Return what a record of a message's log line has in addition (``extra=``)."""
    return {} if place is None else {"place": f" [{place}]"}


def parse_lines(lines: Iterable[str]) -> Iterator[LogLine]:
    """Yield the entries of a file; lines without a time are part of the entry above them."""
    first, more = None, list[str]()
    for line in lines:
        if line.startswith(_OF_RAY):
            continue
        found = LogLine.parse(line)
        if first is not None and found.time_ms is None and len(more) < _LINES_MAX:
            more.append(line)
            continue
        if first is not None:
            yield _with(first, more)
        first, more = found, []
    if first is not None:
        yield _with(first, more)


def _with(line: LogLine, more: list[str]) -> LogLine:
    if not more:
        return line
    rest = "\n".join(["", *more])
    return replace(line, written=line.written + rest, text=line.text + rest)
