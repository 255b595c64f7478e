"""The live tail as a stream of events, and as one bounded record.

A step reads at most ``ROWS_MAX`` messages each quarter of a second, more than a reader can
follow; the filter's counters cover all messages. What the browser does not get is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocketray.base.json_fields import json_fields
from rocketray.base.names import check_topic
from rocketray.broker.filtering.seen_messages import SeenMessage
from rocketray.broker.filtering.tail import TailStart
from rocketray.console.changes.form_fields import (
    EXPRESSION_MAX,
    AskFilter,
    checked_texts,
    filter_or_name,
    is_number,
    looked_up,
)
from rocketray.errors import ConfigError, FilterSyntaxError, TopicNotFoundError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.remote.disks_tail import AskNode, DisksTail
from rocketray.messaging.remote.tail_api import TailQuery
from rocketray.runtime.files.paths import shard_directory
from rocketray.views.filter_records import checked_filter, refused_filter
from rocketray.views.json_text import json_lines
from rocketray.views.lookups import time_ms_of
from rocketray.views.message_records import printable, seen_record, why_of

STEP_S = 0.25
ROWS_MAX = 50
FIRST_ROWS_MAX = 500  # what a page keeps
_BODY_CHARS = 400
_JSON_MAX_BYTES = 2048  # of a body in lines: a page keeps 500
_RECORD_MAX = 500
_RECORD_S = 5.0  # then ``complete`` says that there is more
_PAUSE_S = 0.01  # between two looks while nothing has arrived
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
        """Return what ``kind`` and ``expression`` choose: a filter, or the name of one."""
        return filter_or_name(self.kind, self.expression)

    def subscription(self, ask: AskFilter) -> Subscription:
        """Return the filter; a name is looked up. Raises as :func:`looked_up`."""
        chosen = self.chosen()
        if isinstance(chosen, Subscription):
            return chosen
        return looked_up(ask, self.topic, chosen).subscription

    def prepare(self, node: NodeClient) -> TailQuery:
        """Return the tail with what the node knows: the filter of a name, and where it begins.

        Raises:
            ConfigError: its offset, time, key or name is wrong.
            TopicNotFoundError: there is no such topic.
        """
        queues = node.topics.get(self.topic).queues
        subscription = self.subscription(lambda question: question(node))
        return TailQuery(self.topic, subscription, self._start(node, queues), self.with_rejected)

    def _start(self, node: NodeClient, queues: int) -> TailStart:
        if not self.after:
            return self._first_start(node)
        known = _positions(self.after)
        begun = {queue: position for queue, position in known.items() if position is not None}
        added = dict.fromkeys(set(range(queues)) - known.keys(), 0)
        first = TailStart("earliest") if len(begun) == len(known) else self._first_start(node)
        return replace(first, positions=begun | added)

    def _first_start(self, node: NodeClient) -> TailStart:
        match self.begin:
            case "offset":
                if not is_number(self.at):
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
        times = [one.store_timestamp_ms for one in found if one.has_key(self.at)]
        if not times:
            raise ConfigError(f"no message of topic {self.topic} has the key {self.at[:80]!r}")
        return min(times)


def row_of(seen: SeenMessage, *, in_lines: bool = False) -> dict[str, Any]:
    """Return what the page shows of a message: short, and printable.

    ``json`` is a body of JSON *in_lines*; None for any other, or one that is too large.
    """
    message = seen.message
    # A character has four bytes at most in UTF-8.
    text = message.body[: 4 * _BODY_CHARS].decode("utf-8", "replace")
    own = {k: v for k, v in message.properties.items() if k not in ("TAGS", "KEYS", "UNIQ_KEY")}
    return {
        "place": f"{message.queue_id}@{message.queue_offset}",
        "time": message.store_timestamp_ms,
        "tag": message.tags,
        "keys": " ".join(message.keys),
        "properties": printable(" ".join(f"{k}={v}" for k, v in own.items())[:_BODY_CHARS]),
        "body": printable(text[:_BODY_CHARS]),
        "json": shown_json(message.body, _JSON_MAX_BYTES) if in_lines else None,
        "verdict": seen.reason.value,
        "why": why_of(seen),
    }


def shown_json(body: bytes, most: int) -> str | None:
    """Return a body of JSON of *most* bytes in lines, printable; None for any other body."""
    try:
        lines = json_lines(body.decode()) if len(body) <= most else None
    except UnicodeDecodeError:
        return None
    return lines and printable(lines, also="\n")


def counts_record(tail: DisksTail) -> dict[str, Any]:
    """Return the sums of a tail, what was left out, and the queues from which nothing comes."""
    counts = tail.counts
    named = {"skipped": counts.skipped, "unshown": counts.unshown, "error": counts.error or None}
    unread = [{**json_fields(each), "text": str(each)} for each in tail.unread]
    return {"counters": json_fields(counts.filter), **named, "unread": unread}


class LiveTail:
    """A tail that is read in steps, in any thread; it can be closed while one runs."""

    def __init__(self, tail: DisksTail, *, in_lines: bool = False) -> None:
        """Take over an open tail; bodies of JSON are shown *in_lines*."""
        self._tail = tail
        self._in_lines = in_lines
        self._lock = threading.Lock()

    @property
    def positions(self) -> str:
        """The positions for ``after`` of a :class:`TailRequest`; "" if they are too long."""
        found = sorted(self._tail.positions.items())
        text = ",".join(f"{queue}:{'' if offset is None else offset}" for queue, offset in found)
        return text if len(text) <= EXPRESSION_MAX else ""

    def step(self) -> dict[str, Any]:
        """Read a step; return its rows and the sums so far.

        The first step is longer: it has the messages that were stored before.
        """
        with self._lock:
            room = ROWS_MAX if self._tail.counts.filter.scanned else FIRST_ROWS_MAX
            rows = [row_of(seen, in_lines=self._in_lines) for seen in self._tail.read(room)]
            return {"rows": rows, **counts_record(self._tail)}

    def look_for_queues(self) -> None:
        with self._lock:
            self._tail.look_for_queues()

    def close(self) -> None:
        """Wait for the step that runs, and unmap the files."""
        with self._lock:
            self._tail.close()


def tail_record(ask: AskNode, request: TailRequest, most: int = _RECORD_MAX) -> dict[str, Any]:
    """Return the first *most* messages of a tail that exist now, as ``rocketray tail --json``.

    ``unread`` are queues from which nothing came. Raises as :meth:`TailRequest.prepare`.
    """
    tail = DisksTail(ask, ask(request.prepare))
    messages: list[dict[str, Any]] = []
    ends_s = time.monotonic() + _RECORD_S
    try:
        while tail.has_more and len(messages) < most and time.monotonic() < ends_s:
            before = tail.counts
            for seen in tail.read():
                if len(messages) < most:
                    messages.append(seen_record(seen))
            if tail.counts == before:
                time.sleep(_PAUSE_S)  # another disk's messages are on their way
        is_complete = not tail.has_more
        return {"messages": messages, "complete": is_complete, **counts_record(tail)}
    finally:
        tail.close()


def check_record(data: Path | None, ask: AskFilter, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a filter as ``filter check --json``, with the caret's lines if it does not parse.

    It is compared with messages in *data*, if that has some of the topic.
    """
    expression = checked_texts(query).get("filter", "")
    if not expression.strip():
        return {"expression": "", "valid": True, "warnings": [], "error": None, "caret": None}
    topic = query.get("topic", "")
    request = TailRequest(topic, query.get("kind", "TAG"), expression.strip())
    try:
        subscription = request.subscription(ask)
        has_messages = data is not None and shard_directory(data, topic or "-", 0).parent.is_dir()
        checked = checked_filter(subscription, data if has_messages else None, topic or None)
    except FilterSyntaxError as error:
        return {**refused_filter(error), "caret": str(error)}
    except (ConfigError, TopicNotFoundError) as error:
        if request.kind != _NAME:
            raise
        return {"expression": expression, "valid": False, "error": str(error), "caret": None}
    return {**checked.record(), "caret": None}


def _positions(text: str) -> dict[int, int | None]:
    """Return the positions of :attr:`LiveTail.positions`; None for a queue that has not begun."""
    found: dict[int, int | None] = {}
    for place in text.split(","):
        queue, _, offset = place.partition(":")
        if not (is_number(queue) and (not offset or is_number(offset))):
            raise ConfigError(f"{place[:40]!r} is not a position of a tail; load the page again")
        found[int(queue)] = int(offset) if offset else None
    return found
