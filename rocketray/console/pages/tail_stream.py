"""The live tail as a stream of events, and as one bounded record.

A step reads at most ``ROWS_MAX`` messages each quarter of a second, more than a reader can
follow; the filter's counters cover all messages. What the browser does not get is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.filtering.tail import SeenMessage, TailCounts, TailStart, TopicTail
from rocketray.actors.named_filters.filter_book import NamedFilter
from rocketray.errors import ConfigError, FilterSyntaxError, TopicNotFoundError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.names import check_topic
from rocketray.views.filter_records import checked_filter, refused_filter
from rocketray.views.json_fields import json_fields
from rocketray.views.message_records import printable
from rocketray.views.verdicts import seen_record, why_of

from .page_views import EXPRESSION_MAX

__all__ = ["STEP_S", "LiveTail", "TailRequest", "check_record", "row_of", "tail_record"]

STEP_S = 0.25
ROWS_MAX = 50
FIRST_ROWS_MAX = 500  # what a page keeps
_BODY_CHARS = 400
_RECORD_MAX = 500
_STEPS_MAX = 200
Ask = Callable[[Callable[[NodeClient], NamedFilter]], NamedFilter]
_NAME = "NAME"
_STARTS = ("latest", "earliest")


@dataclass(frozen=True, slots=True)
class TailRequest:
    """What a tail shows: the fields of the page's form.

    ``kind`` is that of ``expression``: TAG, SQL92, or NAME for the name of a filter of the topic.
    """

    topic: str
    kind: str = "TAG"
    expression: str = ""
    start: str = "latest"
    with_rejected: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TailRequest:
        """Return the request of an address.

        Raises:
            ConfigError: a field is missing, unknown or too long. FilterSyntaxError: the filter.
        """
        kind, expression = query.get("kind", "TAG"), query.get("filter", "").strip()
        start = query.get("from", "latest")
        if len(expression) > EXPRESSION_MAX:
            raise ConfigError(f"the filter is longer than {EXPRESSION_MAX} characters")
        if kind not in ("TAG", "SQL92", _NAME):
            raise ConfigError(
                "kind is TAG, SQL92 or NAME; predicates run in rocketray tail --where"
            )
        if start not in _STARTS and not _is_number(start):
            raise ConfigError("from is latest, earliest or a queue offset")
        request = cls(
            check_topic(query.get("topic", "")), kind, expression, start, "rejected" in query
        )
        chosen = request.chosen()
        if isinstance(chosen, Subscription):
            chosen.check_text()
        return request

    def chosen(self) -> Subscription | FilterName:
        """Return the filter, or its name."""
        if self.kind == _NAME:
            return FilterName.parse(self.expression)
        if self.kind == "SQL92" and self.expression:
            return Subscription.sql(self.expression)
        return Subscription.tags(self.expression or "*")

    def subscription(self, ask: Ask) -> Subscription:
        """Return the filter; a name is looked up by *ask*, which asks the node.

        Raises:
            ConfigError: there is no such filter, or it is a predicate.
        """
        chosen = self.chosen()
        if isinstance(chosen, Subscription):
            return chosen
        found = ask(lambda node: node.named_filters.get(self.topic, chosen)).subscription
        if found.expression_type == "CLASS":
            raise ConfigError(
                f"filter {chosen} is a predicate, which the console does not run; see: rocketray "
                f"tail {self.topic} --filter {chosen}"
            )
        return found

    def open(self, data: Path, ask: Ask) -> TopicTail:
        """Return the tail; raises as :class:`TopicTail`."""
        start = TailStart("latest")
        if self.start == "earliest":
            start = TailStart("earliest")
        elif self.start != "latest":
            start = TailStart("offset", int(self.start))
        wanted = self.subscription(ask)
        return TopicTail(data, self.topic, wanted, start, with_rejected=self.with_rejected)


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
    data: Path, ask: Ask, request: TailRequest, most: int = _RECORD_MAX
) -> dict[str, Any]:
    """Return the first *most* messages of a tail that exist now, as ``rocketray tail --json``."""
    tail = request.open(data, ask)
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
        return {"messages": found, **counts_record(tail.counts)}
    finally:
        tail.close()


def check_record(data: Path, ask: Ask, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a filter as ``filter check --json``, with the caret's lines if it does not parse."""
    expression = query.get("filter", "")
    if len(expression) > EXPRESSION_MAX:
        raise ConfigError(f"the filter is longer than {EXPRESSION_MAX} characters")
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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
