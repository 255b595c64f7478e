"""What becomes of messages that fail, as Python lists: the model of retries and dead letters.

It reads the schedule, the retry topic and the dead letters as they grow. Each message there is one
that a handler failed on, or that somebody redrove, and comes once for it; it is the message that
was sent, with its keys, its first topic and id, and the right count. What waits comes back in time
and not before. The group's filter is
applied once, where a message was sent: whatever the filter is by then, what failed comes again.

A message that was finished, or given back, comes to no handler again while its queue has the same
owner; with another one it does only if it stood behind an unfinished message, or if the owner
crashed, lost its lease, or told a coordinator that died. In an ordered group no message comes while
one before it in its queue is not settled, nor while the queue rests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from support.models.group_model import GroupModel, Sent
from support.models.stepped_app import TOPIC, SteppedApp, SteppedFeed

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.marks import ORIGIN_MESSAGE_ID, REDRIVEN_FROM, RETRY_TOPIC
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import dead_letter_topic, retry_topic
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.message import StoredMessage
from rocketray.testing import Broker
from rocketray.topology.delivery.delivery import Delivery
from rocketray.topology.values.failure_rules import FailureRules

TICK_MS = 1_000
_PAUSE_MAX_MS = 61_000  # how long the schedule leaves a target alone that failed
_FIRST_LEVEL = 3  # RocketMQ's ConsumeMessageConcurrently: 10 s


@dataclass(frozen=True)
class Copy:
    """A message on its way back: where it was read, and how often its group had it by then."""

    sent: Sent
    queue: int
    queue_offset: int
    is_dead_letter: bool
    due_ms: int = 0


@dataclass
class Ownership:
    """What an app did with a queue since it began to read it."""

    start: int
    settled: set[int] = field(default_factory=set)
    """Finished by a handler, or given back."""
    in_hand: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    rests_until_ms: int = 0


class RetryModel(GroupModel):
    """One group that reads a topic and its own retries; the last queue is that of the retries."""

    def __init__(
        self, broker: Broker, queues: int, rules: FailureRules, heard: Callable[[int], int]
    ) -> None:
        super().__init__(queues + 1, heard, lambda _: False)
        self.broker = broker
        self.rules = rules
        self.is_calm = True
        """Nothing happened yet after which messages may come twice."""
        self.originals: dict[int, StoredMessage] = {}
        self.returning: dict[SteppedApp, list[Copy]] = {}
        """What each app gave back and the node has not yet."""
        self.waiting: list[Copy] = []
        self.letters: list[Sent] = []
        self.redriven: set[int] = set()
        """Numbers of the letters that were redriven."""
        self.redriving: list[Sent] = []
        self.succeeded: dict[int, int] = {}
        """How often each message was finished by a handler that did not raise."""
        self.left_out: set[int] = set()
        """Messages that the group's filter left out."""
        self.tolerant_until_ms = 0
        self.unheard: set[int] = set()
        """Letters that were redriven, whose answer was lost: the next redrive notes that."""
        self.has_lost_answers = False
        """Answers to appends were lost, so what apps gave back may be stored twice."""
        self._given_back: list[Copy] = []
        self._dropped: list[tuple[int, Copy]] = []
        """What apps had not given back when they lost its queue, and when that was."""
        self._retries = queues
        self._owned: dict[tuple[SteppedFeed, int], Ownership] = {}
        self._of: dict[Delivery, Ownership] = {}
        self._seen: dict[tuple[str, int], int] = {}

    def matching(self, queue_id: int, start: int, stop: int) -> list[int]:
        """The offsets from *start* up to, not including, *stop* that the group is to get."""
        if queue_id == self._retries:
            return list(range(start, stop))
        return super().matching(queue_id, start, stop)

    # What the app does

    def queue_of(self, feed: SteppedFeed, queue_id: int) -> int:
        """The number that the model gives a queue."""
        return queue_id if feed.topic == TOPIC else self._retries

    def began(self, feed: SteppedFeed, queue_id: int, start: int) -> None:
        self.observe()
        number = self.queue_of(feed, queue_id)
        self.begin(feed.app, number, start)
        self._owned[feed, number] = Ownership(start)

    def read(self, feed: SteppedFeed, batch: ConsumedBatch, start: int) -> None:
        self.observe()
        number = self.queue_of(feed, batch.queue_id)
        due = self.matching(number, start, batch.next_queue_offset)
        assert batch.queue_offsets.tolist() == due
        sent = self.queues[number].sent
        assert [int(body) for body in batch.bodies()] == [sent[at].name for at in due]

    def gave_up(self, feed: SteppedFeed, queue_id: int, committed: int) -> None:
        self.observe()
        number = self.queue_of(feed, queue_id)
        queue, app = self.queues[number], feed.app
        owned, pending = self._owned.pop((feed, number)), self.returning.get(app, [])
        done = owned.settled - {one.queue_offset for one in pending if one.queue == number}
        left = self.matching(number, committed, len(queue.sent))
        # What it gave back may be stored without its knowing, until it has asked again.
        is_unsure = self.has_lost_answers and not app.road.is_set()
        assert is_unsure or not left or left[0] not in done, (
            f"queue {number}: {left[0]} comes again in vain"
        )
        if owned.in_hand or done & set(left):
            self.is_calm = False
        self._dropped += [(self.broker.clock(), one) for one in pending if one.queue == number]
        pending[:] = [one for one in pending if one.queue != number]
        self.revoke(app, number, committed)

    def handed(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        number, offset = self._place(feed, delivery, index)
        queue, stored = self.queues[number], delivery.shared.messages[index]
        app, owned = feed.app, self._owned[feed, number]
        registry = self.broker.node.state.registry
        owners = registry.memberships.get(self.rules.group, feed.topic).owners.names
        assert owners.get(delivery.queue_id) == app.name, "somebody else may read the queue"
        assert offset not in owned.settled | owned.in_hand, f"queue {number}: {offset} came twice"
        assert self.broker.clock() >= owned.rests_until_ms, f"queue {number} does not rest"
        if self.rules.is_ordered:
            before = set(self.matching(number, owned.start, offset))
            same = {delivery.shared.next_queue_offset(at) for at in range(delivery.cursor, index)}
            assert before <= owned.settled | (same & owned.in_hand), f"{offset} came out of order"
        owned.in_hand.add(offset)
        self._of[delivery] = owned
        self._check_same(stored, queue.sent[offset])

    def finished(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        number, offset = self._place(feed, delivery, index)
        self._settle(delivery, offset)
        self._finish(number, offset)
        name = self.queues[number].sent[offset].name
        self.succeeded[name] = self.succeeded.get(name, 0) + 1

    def comes_again(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        _, offset = self._place(feed, delivery, index)
        self._of[delivery].in_hand.discard(offset)

    def failed(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        number, offset = self._place(feed, delivery, index)
        owned = self._of[delivery]
        if delivery.is_withdrawn:
            return
        sent, rules = self.queues[number].sent[offset], self.rules
        times = owned.failures[offset] = owned.failures.get(offset, 0) + 1
        if rules.is_ordered and (rules.max_attempts is None or times <= rules.max_attempts):
            owned.in_hand.discard(offset)
            owned.rests_until_ms = self.broker.clock() + round(1000 * rules.suspend_s)
            return
        attempts = sent.attempts + times
        is_over = rules.max_attempts is not None and sent.attempts >= rules.max_attempts
        copy = Copy(sent._replace(attempts=attempts), number, offset, is_over or rules.is_ordered)
        self.returning.setdefault(feed.app, []).append(copy)
        self._settle(delivery, offset)

    def ended(self, app: SteppedApp) -> None:
        """An app is gone; what it had not given back by then is not given back any more."""
        self.observe()
        self.returning.pop(app, None)
        for feed, number in [key for key in self._owned if key[0].app is app]:
            del self._owned[feed, number]

    def send(self, queue_id: int, sent: list[Sent]) -> None:
        """These messages were stored in a queue of the topic."""
        self.queues[queue_id].sent += sent
        for one, stored in zip(sent, self._new(TOPIC, queue_id), strict=True):
            self.originals[one.name] = stored

    def tolerate(self) -> None:
        """Appends fail from now on, so that deliveries are late."""
        self.tolerant_until_ms = self.broker.clock() + _PAUSE_MAX_MS

    # What the node stores

    def observe(self) -> None:
        """Take note of what the logs have now; each message there has its reason."""
        for level in range(len(DELAY_LEVELS_MS)):
            for stored in self._new(SCHEDULE_TOPIC, level):
                copy = self._returned(stored, is_dead_letter=False)
                assert level == min(_FIRST_LEVEL + copy.sent.attempts - 1, 18) - 1
                due_ms = stored.store_timestamp_ms + DELAY_LEVELS_MS[level]
                self.waiting.append(Copy(copy.sent, copy.queue, copy.queue_offset, False, due_ms))
        for stored in self._new(dead_letter_topic(self.rules.group), 0):
            self.letters.append(self._returned(stored, is_dead_letter=True).sent)
        for stored in self._new(retry_topic(self.rules.group), 0):
            self.queues[self._retries].sent.append(self._came_back(stored))

    def check_times(self) -> None:
        """Nothing waits that is due."""
        self.observe()
        now_ms = self.broker.clock()
        if now_ms > self.tolerant_until_ms:
            late = [copy for copy in self.waiting if copy.due_ms < now_ms - TICK_MS]
            assert [copy for copy in late if not self._has_twin(copy)] == []

    def redrive(self, letters: list[int]) -> None:
        """Letters with these numbers go to the retry topic next."""
        self.unheard = set()
        self.redriven |= set(letters)
        self.redriving += [self.letters[number]._replace(attempts=0) for number in letters]

    def redrive_failed(self, letters: list[int]) -> None:
        """The redrive of these failed: all are in the retry topic, or none."""
        self.observe()
        if self.redriving:
            self.redriven -= set(letters)
            self.redriving.clear()
        else:
            self.unheard = set(letters)

    def check_committed(self, queue_id: int, committed: int, *, may_go_back: bool) -> None:
        queue = self.queues[queue_id]
        before = max(queue.committed, 0)
        super().check_committed(queue_id, committed, may_go_back=may_go_back)
        left_out = set(range(before, committed)) - set(self.matching(queue_id, before, committed))
        self.left_out |= {queue.sent[at].name for at in left_out}

    def check_end(self) -> None:
        """All is over: what was sent is finished, a dead letter, or left out by the filter."""
        assert all(map(self._has_twin, self.waiting)), "retries that never came"
        assert not self.redriving, "letters that never came again"
        assert not any(self.returning.values())
        letters = {letter.name for letter in self.letters}
        ends = self.succeeded.keys() | letters | self.left_out
        assert ends == self.originals.keys(), "messages without an end"
        if self.is_calm:
            again = [self.letters[number].name for number in self.redriven]
            for name in self.originals.keys() - self.left_out:
                number = sum(letter.name == name for letter in self.letters) - again.count(name)
                assert self.succeeded.get(name, 0) + number == 1, f"message {name} ended twice"

    def _returned(self, stored: StoredMessage, *, is_dead_letter: bool) -> Copy:
        """The failure for which *stored* is there."""
        name, attempts = int(stored.body), stored.reconsume_times
        for copies in self.returning.values():
            for copy in copies:
                known = copy.sent.name, copy.sent.attempts, copy.is_dead_letter
                if known == (name, attempts, is_dead_letter):
                    copies.remove(copy)
                    self._check_same(stored, copy.sent)
                    self._finish(copy.queue, copy.queue_offset)
                    self._given_back.append(copy)
                    return copy
        for dropped_ms, copy in self._dropped:
            known = copy.sent.name, copy.sent.attempts, copy.is_dead_letter
            if (dropped_ms, *known) == (self.broker.clock(), name, attempts, is_dead_letter):
                self.is_calm = False  # it was on its way
                return copy
        for copy in self._given_back:
            known = copy.sent.name, copy.sent.attempts, copy.is_dead_letter
            if known == (name, attempts, is_dead_letter) and self.has_lost_answers:
                self.is_calm = False
                return copy
        raise AssertionError(f"nobody gave {name} back in {stored.topic} with {attempts} attempts")

    def _came_back(self, stored: StoredMessage) -> Sent:
        name, attempts = int(stored.body), stored.reconsume_times
        if attempts == 0:
            sent = self.redriving.pop(0)
            assert (sent.name, REDRIVEN_FROM in stored.properties) == (name, True)
        else:
            found = [c for c in self.waiting if (c.sent.name, c.sent.attempts) == (name, attempts)]
            copy = min(found, key=lambda copy: copy.due_ms)
            assert copy.due_ms <= stored.store_timestamp_ms, f"{name} came back too early"
            self.waiting.remove(copy)
            sent = copy.sent
        self._check_same(stored, sent)
        return sent

    def _check_same(self, stored: StoredMessage, sent: Sent) -> None:
        """*stored* is the message *sent*, wherever it lies now."""
        original = self.originals[sent.name]
        assert (int(stored.body), stored.reconsume_times) == (sent.name, sent.attempts)
        assert stored.tags == original.tags
        assert stored.keys == original.keys
        assert stored.unique_key == original.unique_key
        assert stored.born_timestamp_ms == original.born_timestamp_ms
        if stored.topic != TOPIC:
            assert stored.properties[RETRY_TOPIC] == TOPIC
            assert stored.properties[ORIGIN_MESSAGE_ID] == original.offset_message_id

    def _has_twin(self, copy: Copy) -> bool:
        """The same message came back as often: a schedule that asks what is stored drops one."""
        return copy.sent in self.queues[self._retries].sent

    def _settle(self, delivery: Delivery, offset: int) -> None:
        self._of[delivery].in_hand.discard(offset)
        self._of[delivery].settled.add(offset)

    def _finish(self, number: int, offset: int) -> None:
        finished = self.queues[number].finished
        finished[offset] = finished.get(offset, 0) + 1

    def _place(self, feed: SteppedFeed, delivery: Delivery, index: int) -> tuple[int, int]:
        return self.queue_of(feed, delivery.queue_id), delivery.shared.next_queue_offset(index)

    def _new(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """What a queue got since the last call."""
        if topic not in self.broker.topics.all():
            return []
        seen = self._seen.get((topic, queue_id), 0)
        end = self.broker.node.shard(topic, queue_id).writer.control.visible()
        found = [self.broker.messages.at(topic, queue_id, at) for at in range(seen, end)]
        self._seen[topic, queue_id] = end
        return [one for one in found if one is not None]
