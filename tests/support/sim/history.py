"""What was sent to a simulated node, what its groups got, and whether that is right.

The history knows every message, and decides by itself which group has to get it. It keeps what was
promised: an acknowledgement, a commit of a transaction, a delay. It raises :class:`WrongError`
with the first broken promise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_offsets import LONG_MAX
from rocketray.message import Message, StoredMessage
from rocketray.services.explaining.cause import Cause

TAGS = (None, "Aa", "BB", "C")  # the first two have one hash code
LONG_EVERY = 5
"""One of so many messages has a property longer than a sector."""
_LEFT_OUT = (
    Cause.TAG_MISMATCH, Cause.TAG_COLLISION, Cause.SQL_FALSE, Cause.SQL_NULL, Cause.SKIPPED,
)  # fmt: skip
Place = tuple[str, int, int]
"""Topic, queue id and queue offset."""


class WrongError(AssertionError):
    """The node broke a promise."""


@dataclass(slots=True, eq=False)
class Sent:
    """One message, as its sender knows it."""

    number: int
    topic: str
    tag: str | None
    amount: int
    key: str
    padding: int
    """By how many bytes the body is longer."""
    due_ms: int = 0
    """When a delayed message may be delivered; 0 without a delay."""
    decision: str = ""
    """What its transaction was decided to be; empty for no transaction."""
    is_decided: bool = False
    """Whether the node acknowledged that decision."""
    is_acked: bool = False
    is_safe: bool = False
    """Whether it is on disk, by the node's word: in its topic, or where it waits before."""
    is_placed: bool = False
    """Whether it is on disk in its topic."""
    may_repeat: bool = False
    """Whether something happened that allows a second copy."""
    losses: int = 0
    """The number of power failures before it was acknowledged."""
    acked_ms: int = 0
    """When that was, by a clock that nobody sets."""
    is_deleted: bool = False
    """Its topic was deleted."""

    @property
    def body(self) -> bytes:
        """The content, which no other message has."""
        return b"%d " % self.number + b"x" * (self.number * 37 % 150 + self.padding)

    def properties(self) -> dict[str, str]:
        """The properties."""
        found = {"amount": str(self.amount)}
        if self.number % LONG_EVERY == 0:
            found["long"] = f"{self.number}." * 250
        return found

    def message(self) -> Message:
        """The message to send."""
        return Message(self.topic, self.body, self.tag, [self.key], self.properties())

    @property
    def is_safe_there(self) -> bool:
        """Whether it is on disk in its topic, and not only where it waited before."""
        return self.is_safe and (self.is_placed or not (self.due_ms or self.decision))

    @property
    def is_wanted(self) -> bool:
        """Whether groups are to get it, once it is stored."""
        return self.decision in ("", "commit")


class Filter(NamedTuple):
    """A subscription, and what it means."""

    subscription: Subscription
    matches: Callable[[Sent], bool]


FILTERS = (
    Filter(Subscription.tags("*"), lambda _: True),
    Filter(Subscription.tags("Aa || C"), lambda sent: sent.tag in {"Aa", "C"}),
    Filter(Subscription.sql("amount > 5"), lambda sent: sent.amount > 5),
    Filter(
        Subscription.sql("amount BETWEEN 3 AND 7 AND TAGS IS NOT NULL"),
        lambda sent: 3 <= sent.amount <= 7 and sent.tag is not None,
    ),
)


@dataclass(slots=True)
class Group:
    """A consumer group of one topic, with its own notes of what it did."""

    name: str
    topic: str
    filter: Filter
    is_broadcast: bool = False
    attempts: int = 2
    """Redeliveries before a message is a dead letter."""
    done: set[int] = field(default_factory=set)
    """Messages that a handler finished, or that were sent back as failed."""
    succeeded: set[int] = field(default_factory=set)
    skipped: set[tuple[int, int]] = field(default_factory=set)
    """Queues and offsets that a command went over."""
    passed: dict[tuple[str, int], int] = field(default_factory=dict)
    """The committed offset of each queue, as the last check saw it."""
    saved: dict[tuple[str, int], int] = field(default_factory=dict)
    """The offset of each queue at the last save, or since it was moved."""
    moves: dict[int, int] = field(default_factory=dict)
    """Where an operator wanted each queue to go on, last."""
    moving: set[int] = field(default_factory=set)
    """Those of them that no check has seen move back yet."""
    fails: bool = False
    """Whether some messages fail at first."""
    has_table: bool = False

    def failures(self, sent: Sent) -> int:
        """Return how often a handler fails on a message."""
        return {0: 1, 1: 9}.get(sent.number % 6, 0) if self.fails else 0


class History:
    """All messages, groups and places, and the checks of them."""

    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.groups: dict[str, Group] = {}
        self.given: dict[tuple[str, Place], int] = {}
        """The message of each place that was ever seen, by the topic's id and place."""
        self.there: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        """The messages that are in each queue now, by offset."""
        self.begins: dict[tuple[str, int], int] = {}
        self.message_ids: dict[int, str] = {}
        """The offset message id of each message, where it was seen last."""
        self.progress = 0
        """How often something was delivered or finished."""
        self.ids: dict[str, str] = {}
        """The topic ids."""
        self.losses = 0
        """The number of power failures."""
        self.clock_jumped = False
        self.expires: dict[str, int] = {}
        """The topics that lose messages, and the age in ms below which a topic loses none."""
        self.compacted = ""
        """The topic that keeps the last message of each key."""
        self.elapsed_ms: Callable[[], int] = lambda: 0
        """The time by a clock that nobody sets."""
        self.tells_ages = True
        """Whether the node knows how old messages are: the clock was right when it started."""

    def new(self, topic: str, tag: str | None, amount: int, key: str, *, padding: int = 0) -> Sent:
        """Return the next message; it is sent by the caller."""
        number = len(self.sent) + 1
        self.sent[number] = Sent(number, topic, tag, amount, key, padding)
        return self.sent[number]

    # What happens

    def acked(self, sent: Sent, place: Place | None, *, to_disk: bool) -> None:
        """The node acknowledged a message; *place* is where, unless it waits elsewhere."""
        sent.is_acked, sent.losses, sent.acked_ms = True, self.losses, self.elapsed_ms()
        sent.is_safe |= to_disk
        if place is not None:
            self._at(place, sent.number)

    def flushed(self, topic: str, queue_id: int) -> None:
        """Everything in a queue is on disk."""
        for number in self.there[topic, queue_id].values():
            self.sent[number].is_safe = self.sent[number].is_placed = True

    def all_safe(self) -> None:
        """Everything acknowledged is on disk: the node was stopped."""
        for sent in self.sent.values():
            sent.is_safe |= sent.is_acked and sent.losses == self.losses
            sent.is_placed |= sent.is_safe

    def may_repeat(self) -> None:
        """A process died or an answer was lost: what was under way may be there twice."""
        for sent in self.sent.values():
            sent.may_repeat = True

    def delivered(self, group: Group, stored: StoredMessage) -> Sent:
        """A handler of *group* gets a message; return it."""
        sent = self.known(stored)
        self.progress += 1
        where = f"{stored.topic}/{stored.queue_id} offset {stored.queue_offset}"
        if not group.filter.matches(sent):
            raise WrongError(f"group {group.name} got {sent.number} at {where}, against its filter")
        if sent.is_deleted:
            raise WrongError(f"group {group.name} got {sent.number} of a deleted topic at {where}")
        if not sent.is_wanted:
            raise WrongError(f"group {group.name} got {sent.number}, whose decision is rollback")
        if sent.due_ms and not self.clock_jumped and stored.store_timestamp_ms < sent.due_ms:
            raise WrongError(f"{sent.number} is due at {sent.due_ms} and was delivered at {where}")
        if not stored.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            self._at((stored.topic, stored.queue_id, stored.queue_offset), sent.number)
        return sent

    def known(self, stored: StoredMessage) -> Sent:
        """Return the message that a record must be, in every byte."""
        where = f"{stored.topic}/{stored.queue_id} offset {stored.queue_offset}"
        head = bytes(stored.body).partition(b" ")[0]
        sent = self.sent.get(int(head)) if head.isdigit() else None
        if sent is None or sent.body != bytes(stored.body):
            raise WrongError(f"nobody sent the body at {where}: {bytes(stored.body)[:40]!r}")
        has = {name: stored.properties.get(name) for name in sent.properties()}
        if has != sent.properties() or stored.tags != sent.tag or sent.key not in stored.keys:
            raise WrongError(f"message {sent.number} is changed at {where}: {stored.properties!r}")
        return sent

    def deleted(self, topic: str) -> None:
        """A topic and everything in it is gone."""
        for sent in self.sent.values():
            sent.is_deleted |= sent.topic == topic
        for place in [place for place in self.there if place[0] == topic]:
            del self.there[place]
        for group in self.groups.values():
            if group.topic == topic:
                group.done.clear()
                group.succeeded.clear()
                group.passed.clear()
                group.saved.clear()

    def groups_saved(self) -> None:
        """The coordinator has saved the groups as the last check saw them, or later ones."""
        for group in self.groups.values():
            group.saved = dict(group.passed)

    # Checks

    def scan(self, topic: str, queue_id: int, found: Iterable[StoredMessage], begin: int) -> None:
        """Compare all that a queue holds with what was sent, and with what has to be there."""
        now: dict[int, int] = {}
        for stored in found:
            sent = self.known(stored)
            if sent.is_deleted:
                raise WrongError(f"{topic}/{queue_id} has {sent.number} of a deleted topic")
            if not sent.is_wanted:
                raise WrongError(f"{topic}/{queue_id} has {sent.number}, which was rolled back")
            now[stored.queue_offset] = sent.number
            self.message_ids[sent.number] = stored.offset_message_id
            self._at((topic, queue_id, stored.queue_offset), sent.number)
            if stored.topic != topic or stored.queue_id != queue_id:
                raise WrongError(f"{topic}/{queue_id} has a record of {stored.topic}")
        self.begins[topic, queue_id] = begin
        for offset, number in self.there[topic, queue_id].items():
            is_kept = offset >= begin or topic not in self.expires or self._is_young(number)
            if is_kept and self.sent[number].is_safe_there and now.get(offset) != number:
                raise WrongError(
                    f"message {number} was on disk at {topic}/{queue_id} offset {offset}, where "
                    f"{now.get(offset)} is; the queue begins at {begin}"
                )
        self.there[topic, queue_id] = now
        if topic == self.compacted:
            self._check_compacted(topic, set(now.values()))

    def check_copies(self) -> None:
        """Check that no message is stored twice without a cause."""
        seen: dict[int, Place] = {}
        for (topic, queue_id), messages in self.there.items():
            if topic in self.expires:
                continue  # compaction stores messages again
            for offset, number in messages.items():
                if number in seen and not self.sent[number].may_repeat:
                    raise WrongError(
                        f"message {number} is at {seen[number]} and at {topic}/{queue_id} {offset}"
                    )
                seen[number] = topic, queue_id, offset

    def check_committed(
        self, group: Group, topic: str, queue_id: int, committed: int, *, may_go_back: bool
    ) -> None:
        """Check that a group's offset has passed nothing that it has not finished."""
        place = topic, queue_id
        before = group.passed.get(place, -1)
        target = group.moves.get(queue_id, LONG_MAX)
        may_go_back |= committed == target
        if queue_id in group.moving and target <= committed < before:
            may_go_back = True  # the group may have read on since it was moved
            group.moving.remove(queue_id)
        if committed < before and not may_go_back:
            raise WrongError(f"{group.name} went back from {before} to {committed} in {place}")
        if committed < min(group.saved.get(place, -1), target):
            raise WrongError(f"{group.name} is at {committed} in {place}; saved was {group.saved}")
        group.passed[place] = committed
        if place in group.saved:  # below it only by a move, after which there may be another one
            group.saved[place] = min(group.saved[place], committed)
        for offset, number in self.there[place].items():
            if offset < committed and not self._is_due(group, number, queue_id, offset):
                raise WrongError(
                    f"group {group.name} went past message {number} at {place} offset {offset}: its "
                    f"offset is {committed}"
                )

    def _is_due(self, group: Group, number: int, queue_id: int, offset: int) -> bool:
        """Return whether nothing is left to do for a group."""
        if number in group.done or (queue_id, offset) in group.skipped:
            return True
        return not group.filter.matches(self.sent[number])

    def check_table(
        self,
        group: Group,
        queue_id: int,
        content: Mapping[str, frozenset[int]],
        *,
        to_the_end: bool = False,
    ) -> None:
        """Check that a part of a group's table has all that the group has passed, at least."""
        topic = group.topic
        for offset, number in self.there[topic, queue_id].items():
            is_due = to_the_end or offset < group.passed.get((topic, queue_id), -1)
            is_counted = number in content.get(self.sent[number].key, ())
            if is_due and not is_counted and (queue_id, offset) not in group.skipped:
                raise WrongError(
                    f"message {number} at {topic}/{queue_id} offset {offset} is not in the table of "
                    f"{group.name}: {content}"
                )

    def check_end(self, dead: dict[str, set[int]]) -> None:
        """Check, when nothing is left to do, that everybody has what it was promised."""
        stored = {number for messages in self.there.values() for number in messages.values()}
        for sent in self.sent.values():
            is_due = sent.is_safe and sent.is_wanted and not sent.is_deleted
            if sent.decision and not sent.is_decided:
                continue
            if is_due and sent.number not in stored and sent.topic not in self.expires:
                raise WrongError(f"message is safe, and nowhere: {sent} {dict(self.there)}")
        for group in self.groups.values():
            over = group.succeeded | dead.get(group.name, set())
            for (topic, queue_id), messages in self.there.items():
                for offset, number in messages.items():
                    if topic != group.topic or not group.filter.matches(self.sent[number]):
                        continue
                    if number not in over and (queue_id, offset) not in group.skipped:
                        raise WrongError(
                            f"group {group.name} never finished message {number} at {topic}/"
                            f"{queue_id} offset {offset}"
                        )

    def check_explained(self, group: Group, number: int, cause: Cause) -> None:
        """Check what the node says became of a message that is there, at the end."""
        sent = self.sent[number]
        if group.is_broadcast or cause is Cause.UNKNOWN:
            return
        if not group.filter.matches(sent):
            is_right = cause in _LEFT_OUT
        elif number in group.succeeded:
            is_right = cause in (Cause.DELIVERED, Cause.SKIPPED)
        else:
            is_right = cause in (Cause.DEAD_LETTER, Cause.SKIPPED)
        if not is_right:
            raise WrongError(f"{group.name} and message {number}: explained as {cause}: {sent}")

    def _check_compacted(self, topic: str, found: set[int]) -> None:
        """Check that the last message of each key is there, if it has to be."""
        newest: dict[str, tuple[int, int]] = {}
        for (topic_id, place), number in self.given.items():
            if place[0] == topic and topic_id == self.ids.get(topic, ""):
                key = self.sent[number].key
                newest[key] = max(newest.get(key, (-1, 0)), (place[2], number))
        for key, (offset, number) in newest.items():
            if self.sent[number].is_safe and number not in found:
                raise WrongError(f"{topic} has lost message {number} of {key}, last at {offset}")

    def _is_young(self, number: int) -> bool:
        """Return whether no retention may have removed a message yet."""
        sent = self.sent[number]
        age_ms = self.elapsed_ms() - sent.acked_ms
        return self.tells_ages and sent.is_acked and age_ms < self.expires[sent.topic]

    def _at(self, place: Place, number: int) -> None:
        """Note where a message is; a place has one message for ever."""
        key = self.ids.get(place[0], ""), place
        before = self.given.setdefault(key, number)
        if before != number:
            raise WrongError(f"{place} was given to message {before}, and now to {number}")
        self.there[place[:2]][place[2]] = number
