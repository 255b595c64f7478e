"""The offset of a micro-batch: a position in each queue, what the topics were, and the filter.

Spark stores an offset as JSON in the query's checkpoint, and returns it when the query restarts:

    {"Trade": {"0": 123}, "@": {"topics": {"Trade": "<topic id>"}, "filter": {…}}}

If the queues were restored from a backup, ``@`` has ``restorations``, the ids of all of that.
``@`` is not a topic name. Offsets of earlier releases do not have it, and are accepted unchecked.
There is no version: a later release adds keys to ``@``, and a release refuses those that it does
not know, since it would drop them with the next micro-batch.

Invariants
  1. An offset is valid only in the topic that it was written for: a topic that was deleted and
     created again under its name has another id, and so has one of another data directory.
  2. It is valid only in the same log: where a queue was restored since then, up to the end of the
     backup; and nowhere beyond the end of the queue.
  3. Messages before an offset were evaluated by its filter, so another filter is never accepted
     silently.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rocketray.broker.fetching.read_plan import Bounds, QueueKey
from rocketray.errors import ConfigError, StoreError
from rocketray.filters.subscription import Subscription, describe_difference
from rocketray.queries.ranges.offset_rules import (
    ORIGIN,
    QueueOffsets,
    offsets_from_json,
    offsets_to_json,
)
from rocketray.queries.ranges.topic_choice import TopicChoice

logger = logging.getLogger(__name__)
_KEYS = {"topics", "restorations", "filter"}


@dataclass(frozen=True, slots=True)
class Position:
    """An offset; without topic ids and filter if an earlier release wrote it."""

    offsets: QueueOffsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    subscription: Subscription | None = None
    restorations: frozenset[str] = frozenset()


def to_json(position: Position) -> dict[str, object]:
    """Return the form that Spark stores; equal positions give equal texts."""
    origin: dict[str, object] = {}
    if position.topic_ids:
        origin["topics"] = dict(sorted(position.topic_ids.items()))
    if position.restorations:
        origin["restorations"] = sorted(position.restorations)
    if position.subscription is not None:
        origin["filter"] = position.subscription.to_json()
    return {**offsets_to_json(position.offsets), **({ORIGIN: origin} if origin else {})}


def from_json(value: object, choice: TopicChoice) -> Position:
    """Return the offset in a checkpoint of a query on the topics of *choice*.

    Raises:
        ConfigError: it is not such an object, or it is of a query on other topics or of a later
            release.
    """
    offsets = offsets_from_json(value, choice)
    origin = value.get(ORIGIN, {}) if isinstance(value, dict) else {}
    try:
        ids = {str(topic): _checked_id(text) for topic, text in origin.get("topics", {}).items()}
        restorations = frozenset(map(_checked_id, origin.get("restorations", ())))
    except (AttributeError, TypeError):
        raise ConfigError(
            f"the checkpoint's offset has an invalid value {origin!r:.200} of {ORIGIN!r}; restore "
            "the checkpoint from a copy, or begin a new one"
        ) from None
    if later := sorted(origin.keys() - _KEYS):
        raise ConfigError(
            f"the checkpoint's offset has {', '.join(map(repr, later))} in {ORIGIN!r}, which this "
            "release of rocketray does not know; run the query with the release that wrote it, or "
            "a newer one"
        )
    kept = origin.get("filter")
    subscription = None if kept is None else Subscription.from_json(kept)
    return Position(offsets, ids, subscription, restorations)


def _checked_id(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError
    return text


@dataclass(frozen=True, slots=True)
class Admission:
    """The check of the offsets that a running query accepts: its own topics and its own filter.

    One process calls it repeatedly; each warning is logged once.
    """

    subscription: Subscription
    fail_on_data_loss: bool
    allow_filter_change: bool
    _told: set[str] = field(default_factory=set, init=False)

    def admit(
        self,
        position: Position,
        topic_ids: Mapping[str, str],
        bounds: Mapping[QueueKey, Bounds],
    ) -> QueueOffsets:
        """Return the offsets of *position* for topics with these ids, whose queues have *bounds*.

        Those of other topics are omitted. One that is ahead of its queue is replaced by where the
        log ends that both have.

        Raises:
            ConfigError: it was written with another filter.
            StoreError: a topic is not the one that it was written for, or does not exist any more,
                or a queue ends before its offset, and data loss is an error.
        """
        self._check_filter(position)
        if position.offsets and not position.topic_ids and any(topic_ids.values()):
            self._say_once(
                "this query's checkpoint is older than topic ids: recreated topics and a changed "
                "filter cannot be detected before its next micro-batch"
            )
        kept = position.topic_ids
        lost = {
            topic
            for topic, _ in position.offsets
            # An offset of an earlier release has no id for its topic, so any is taken for the right
            # one.
            if topic not in topic_ids or kept.get(topic, topic_ids[topic]) != topic_ids[topic]
        }
        for topic in sorted(lost):
            self._report_topic(topic, kept.get(topic), topic_ids.get(topic))
        # Of a topic that was recreated, the restorations of its queues say nothing about the
        # checkpoint.
        if not lost:
            self._check_original(position, bounds)
        return {
            key: self._within(key, offset, bounds[key], position.restorations)
            if key in bounds
            else offset
            for key, offset in position.offsets.items()
            if key[0] not in lost
        }

    def _check_original(self, position: Position, bounds: Mapping[QueueKey, Bounds]) -> None:
        """Report a checkpoint of a restored directory, if the queues are those of another one."""
        here = {each.id for held in bounds.values() for each in held.restorations}
        if bounds and not position.restorations <= here:
            self._report(
                "the checkpoint was written where the data directory had been restored from a "
                "backup, and this is the original, or another copy: the messages before the "
                "checkpoint's offsets may be others here",
                "continue at its offsets",
            )

    def _within(self, key: QueueKey, offset: int, held: Bounds, known: Collection[str]) -> int:
        """Return the offset, or where the log ends that the queue and the checkpoint both have."""
        restored = held.common_end(known)
        end = held.visible if restored is None else min(restored, held.visible)
        if offset <= end:
            return offset
        cause = (
            "the data directory was most likely replaced by an older backup or copy"
            if restored is None
            else f"the data directory was restored from a backup that ends at message {end}"
        )
        self._report(
            f"topic {key[0]!r} queue {key[1]}: the checkpoint is at message {offset}, and messages "
            f"{end} to {offset - 1}, which this query has read, are not in the queue: {cause}. Other "
            "messages may have their offsets",
            f"continue with message {end}",
            "Restore the checkpoint of that time, too, or begin a new one",
        )
        return end

    def _check_filter(self, position: Position) -> None:
        kept = position.subscription
        if kept is None or kept == self.subscription:
            return
        what = (
            f"the checkpoint was written with the filter {kept}, and this query has "
            f"{self.subscription} ({describe_difference(kept, self.subscription)})"
        )
        if not self.allow_filter_change:
            raise ConfigError(
                f"{what}: messages that the old filter rejected would stay missing. Use the old "
                "filter; or begin a new checkpoint, to read from startingOffsets on with the new "
                "one; or set allowFilterChange=true, to continue from here with the new one"
            )
        self._say_once(f"{what}: it continues from there, because allowFilterChange=true")

    def _report_topic(self, topic: str, kept: str | None, now: str | None) -> None:
        if now is None:
            what = f"topic {topic!r}, which the checkpoint has, does not exist any more"
            continues = "continue without it"
        else:
            what = (
                f"topic {topic!r}: the checkpoint is of another topic of this name (id {kept}, now "
                f"{now}): it was deleted and recreated, or data names another node's directory"
            )
            continues = "read the existing topic from its first message"
        self._report(what, continues)

    def _report(self, what: str, continues: str, remedy: str = "Begin a new checkpoint") -> None:
        """Raise the error, or say once that the query continues in spite of it."""
        if self.fail_on_data_loss:
            raise StoreError(f"{what}. {remedy}, or set failOnDataLoss=false to {continues}")
        self._say_once(f"{what}; with failOnDataLoss=false, the query will {continues}")

    def _say_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            logger.warning("%s", line)
