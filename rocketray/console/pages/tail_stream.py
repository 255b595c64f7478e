"""The live tail as a stream of events, and as one bounded record.

A step reads at most ``ROWS_MAX`` messages each quarter of a second, more than a reader can
follow; the filter's counters cover all messages. What the browser does not get is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.filtering.tail import SeenMessage, TailCounts, TailStart, TopicTail
from rocketray.console.changes.form_fields import (
    EXPRESSION_MAX,
    AskFilter,
    checked_texts,
    filter_or_name,
    looked_up,
)
from rocketray.errors import ConfigError, FilterSyntaxError, TopicNotFoundError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.names import check_topic
from rocketray.views.filter_records import checked_filter, refused_filter
from rocketray.views.json_fields import json_fields
from rocketray.views.message_records import printable
from rocketray.views.offset_or_time import time_ms_of
from rocketray.views.verdicts import seen_record, why_of

__all__ = [
    "STEP_S",
    "LiveTail",
    "PreparedTail",
    "TailRequest",
    "check_record",
    "row_of",
    "tail_record",
]

STEP_S = 0.25
ROWS_MAX = 50
FIRST_ROWS_MAX = 500  # what a page keeps
_BODY_CHARS = 400
_RECORD_MAX = 500
_STEPS_MAX = 200
_OF_KEY_MAX = 64  # messages with a key, the oldest of which is looked for
_ENDS = ("latest", "earliest")
_AT = ("offset", "time", "key")
_NAME = "NAME"


@dataclass(frozen=True, slots=True)
class TailRequest:
    """What a tail shows: the fields of the page's form.

    ``kind`` is that of ``expression``: TAG, SQL92, or NAME for the name of a filter of the topic.
    """

    topic: str
    kind: str = "TAG"
    expression: str = ""
    begin: str = "latest"
    at: str = ""
    after: str = ""
    with_rejected: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TailRequest:
        """Return the request of an address; ``after`` are the positions of the tail it continues.

        Raises:
            ConfigError: a field is missing, unknown or too long. FilterSyntaxError: the filter.
        """
        query = checked_texts(query)
        kind, expression = query.get("kind", "TAG"), query.get("filter", "").strip()
        begin, at = query.get("from", "latest"), query.get("at", "").strip()
        if begin not in _ENDS + _AT:
            raise ConfigError(f"from is one of {', '.join(_ENDS + _AT)}, not {begin[:40]!r}")
        if begin in _AT and not at:
            raise ConfigError(f"give the {begin} where the tail begins")
        topic, after = check_topic(query.get("topic", "")), query.get("after", "")
        request = cls(topic, kind, expression, begin, at, after, "rejected" in query)
        chosen = request.chosen()
        if isinstance(chosen, Subscription):
            chosen.check_text()
        return request

    def chosen(self) -> Subscription | FilterName:
        """Return the filter, or its name."""
        return filter_or_name(self.kind, self.expression)

    def subscription(self, ask: AskFilter) -> Subscription:
        """Return the filter; a name is looked up. Raises as :func:`looked_up`."""
        chosen = self.chosen()
        if isinstance(chosen, Subscription):
            return chosen
        return looked_up(ask, self.topic, chosen).subscription

    def prepare(self, node: NodeClient) -> PreparedTail:
        """Return the tail with what the node knows: the filter of a name, and where it begins.

        Raises:
            ConfigError: its offset, time, key or name is wrong.
            NodeElsewhereError: all queues of the topic are on other disks.
        """
        elsewhere = _queues_elsewhere(node, self.topic)
        subscription = self.subscription(lambda question: question(node))
        return PreparedTail(self, subscription, self._start(node), elsewhere)

    def _start(self, node: NodeClient) -> TailStart:
        if self.after:
            return TailStart("resume", positions=_positions(self.after))
        match self.begin:
            case "offset":
                if not _is_number(self.at):
                    raise ConfigError(f"{self.at[:40]!r} is not an offset; give a number")
                return TailStart("offset", int(self.at))
            case "time":
                return TailStart("time", time_ms_of(self.at))
            case "key":
                return TailStart("time", self._stored_ms(node))
            case _:
                return TailStart("earliest" if self.begin == "earliest" else "latest")

    def _stored_ms(self, node: NodeClient) -> int:
        found = node.messages.query(self.topic, self.at, _OF_KEY_MAX)
        times = [one.store_timestamp_ms for one in found if self.at in one.keys]
        if not times:
            raise ConfigError(f"no message of topic {self.topic} has the key {self.at[:80]!r}")
        return min(times)


@dataclass(frozen=True, slots=True)
class PreparedTail:
    """A tail that can be opened; ``queues_elsewhere`` are on other disks, and not read."""

    request: TailRequest
    subscription: Subscription
    start: TailStart
    queues_elsewhere: list[int]

    def open(self, data: Path) -> TopicTail:
        """Return the tail; raises as :class:`TopicTail`."""
        with_rejected = self.request.with_rejected
        return TopicTail(
            data, self.request.topic, self.subscription, self.start, with_rejected=with_rejected
        )


def row_of(seen: SeenMessage) -> dict[str, Any]:
    """Return what the page shows of a message: short, and printable."""
    message = seen.message
    text = message.body[: 4 * _BODY_CHARS].decode("utf-8", "replace")
    own = {k: v for k, v in message.properties.items() if k not in ("TAGS", "KEYS", "UNIQ_KEY")}
    return {
        "place": f"{message.queue_id}@{message.queue_offset}",
        "time": message.store_timestamp_ms,
        "tag": message.tags,
        "keys": " ".join(message.keys),
        "properties": printable(" ".join(f"{k}={v}" for k, v in own.items())[:_BODY_CHARS]),
        "body": printable(text[:_BODY_CHARS]),
        "verdict": seen.reason.value,
        "why": why_of(seen),
    }


def counts_record(counts: TailCounts) -> dict[str, Any]:
    """Return the sums of a tail, and what was left out."""
    named = {"skipped": counts.skipped, "unshown": counts.unshown, "error": counts.error or None}
    return {"counters": json_fields(counts.filter), **named}


class LiveTail:
    """A tail that is read in steps, in any thread; it can be closed while one runs."""

    def __init__(self, tail: TopicTail) -> None:
        """Take over an open tail."""
        self._tail = tail
        self._lock = threading.Lock()

    @property
    def positions(self) -> str:
        """The positions for ``after`` of a :class:`TailRequest`; "" if they are too long."""
        found = sorted(self._tail.positions.items())
        text = ",".join(f"{queue}:{offset}" for queue, offset in found)
        return text if len(text) <= EXPRESSION_MAX else ""

    def step(self) -> dict[str, Any]:
        """Read a step; return its rows and the sums so far.

        The first step is longer: it has the messages that were stored before.
        """
        with self._lock:
            room = ROWS_MAX if self._tail.counts.filter.scanned else FIRST_ROWS_MAX
            rows = [row_of(seen) for seen in self._tail.read(room)]
            return {"rows": rows, **counts_record(self._tail.counts)}

    def look_for_queues(self) -> None:
        """See :meth:`TopicTail.look_for_queues`."""
        with self._lock:
            self._tail.look_for_queues()

    def close(self) -> None:
        """Wait for the step that runs, and unmap the files."""
        with self._lock:
            self._tail.close()


def tail_record(
    node: NodeClient, data: Path, request: TailRequest, most: int = _RECORD_MAX
) -> dict[str, Any]:
    """Return the first *most* messages of a tail that exist now, as ``rocketray tail --json``."""
    prepared = request.prepare(node)
    tail = prepared.open(data)
    found: list[dict[str, Any]] = []
    ends_s = time.monotonic() + 5.0
    try:
        for _ in range(_STEPS_MAX):
            before = tail.counts
            for seen in tail.read():
                if len(found) < most:
                    found.append(seen_record(seen))
            if tail.counts == before or len(found) >= most or time.monotonic() > ends_s:
                break
        counts = counts_record(tail.counts)
        return {"messages": found, "queuesElsewhere": prepared.queues_elsewhere, **counts}
    finally:
        tail.close()


def check_record(data: Path, ask: AskFilter, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a filter as ``filter check --json``, with the caret's lines if it does not parse."""
    expression = checked_texts(query).get("filter", "")
    if not expression.strip():
        return {"expression": "", "valid": True, "warnings": [], "error": None, "caret": None}
    topic = query.get("topic", "")
    request = TailRequest(topic, query.get("kind", "TAG"), expression.strip())
    try:
        found = checked_filter(request.subscription(ask), data, topic or None)
    except FilterSyntaxError as error:
        return {**refused_filter(error), "caret": str(error)}
    except (ConfigError, TopicNotFoundError) as error:
        if request.kind != _NAME:
            raise
        return {"expression": expression, "valid": False, "error": str(error), "caret": None}
    return {**found.record(), "caret": None}


def _queues_elsewhere(node: NodeClient, topic: str) -> list[int]:
    config = node.topics.get(topic)
    here = config.by_disk().get(node.disk, [])
    if not here:
        node.files("a tail", config)  # raises
    return [queue_id for queue_id in range(config.queues) if queue_id not in here]


def _positions(text: str) -> dict[int, int]:
    found = {}
    for place in text.split(","):
        queue, _, offset = place.partition(":")
        if not (_is_number(queue) and _is_number(offset)):
            raise ConfigError(f"{place[:40]!r} is not a position of a tail; load the page again")
        found[int(queue)] = int(offset)
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
