"""A plain model of what becomes of each message, and random histories that it follows.

It notes what was done to each message, and knows nothing of journals.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.nodes.transactions import begin

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import (
    RETRY_QUEUES,
    dead_letter_topic,
    retry_topic,
    sent_back,
)
from rocketray.errors import TransactionDecidedError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.message import StoredMessage
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.services.admin.seeking import carry_out, plan_moves
from rocketray.services.explaining.cause import Cause
from rocketray.store.retention import KEEP_ALL, RetentionPolicy
from rocketray.testing import Broker, Clock

QUEUES = 2
STEPS = 60
SAMPLE = 8  # messages that are asked about in between
ALL = Subscription.tags("*")


@dataclass(frozen=True)
class Filter:
    """A subscription, and what it says of a tag and a number."""

    subscription: Subscription
    verdict: Callable[[str, int | None], Cause | None]


def by_number(_: str, number: int | None) -> Cause | None:
    if number is None:
        return Cause.SQL_NULL
    return None if number > 2 else Cause.SQL_FALSE


FILTERS = [
    Filter(ALL, lambda *_: None),
    Filter(Subscription.tags("a"), lambda tag, _: None if tag == "a" else Cause.TAG_MISMATCH),
    Filter(Subscription.tags("b || c"), lambda tag, _: Cause.TAG_MISMATCH if tag == "a" else None),
    Filter(Subscription.sql("x > 2"), by_number),
]


@dataclass
class Sent:
    """A message: where it is, or what keeps it from its queue."""

    key: str
    names: list[str]
    tag: str
    number: int | None
    place: tuple[int, int] | None = None
    end: Cause | None = None
    has_expired: bool = False
    transaction: Any = None
    handle: str | None = None


@dataclass
class Retry:
    """The newest copy of a message that came back: when it comes again, or that it is given up."""

    stored_ms: int
    due_ms: int
    times: int
    is_dead: bool = False
    is_finished: bool = False


@dataclass
class Group:
    """What the model did with a group."""

    name: str
    filter: Filter | None = None
    offsets: list[int] = field(default_factory=lambda: [-1] * QUEUES)
    member: Any = None
    had: set[str] = field(default_factory=set)
    last: dict[str, Cause] = field(default_factory=dict)
    rewound_ms: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and the last moment at which a move went back past a message."""
    retries: dict[str, Retry] = field(default_factory=dict)
    twofold: set[str] = field(default_factory=set)
    """Messages that came back twice, since a move had them read again before the first came."""
    reads_retries: bool = False
    new: Filter | None = None


class History:
    """One random history."""

    def __init__(self, data: Path, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = Clock()
        self.broker = Broker(data, clock=self.clock)
        self.broker.topics.ensure("T", QUEUES)
        self.broker.topics.ensure(SCHEDULE_TOPIC, len(DELAY_LEVELS_MS), internal=True)
        self.groups = [Group("g"), Group("h")]
        for group in self.groups:
            self.broker.topics.ensure(retry_topic(group.name), RETRY_QUEUES, internal=True)
            self.broker.topics.ensure(dead_letter_topic(group.name), 1, internal=True)
        self.producer = self.broker.producer()
        self.transactions = NodeProducer(self.broker.node, group="pg", check=lambda _: "unknown")
        self.sent: dict[str, Sent] = {}
        self.log: list[str] = []
        self.has_expired = False
        self.causes = Counter[Cause]()

    def run(self, steps: int) -> None:
        """Do *steps* random things, and ask about all in between and at the end."""
        actions = [
            (self.send, 6), (self.delay, 2), (self.recall, 1), (self.begin, 2), (self.decide, 2),
            (self.wait, 2), (self.join, 5), (self.leave, 2), (self.crash, 1), (self.consume, 8),
            (self.consume_retries, 2), (self.move, 4), (self.migrate, 2), (self.restart, 1),
            (self.expire, 0.3),
        ]  # fmt: skip
        try:
            for step in range(steps):
                [action] = self.random.choices(*map(list, zip(*actions, strict=True)))
                self.log.append(action.__name__)
                action(self.random.choice(self.groups))
                self.clock.advance(seconds=1)
                self.find_arrived()
                for group in self.groups:
                    self.follow_change(group)
                if step % 10 == 9:
                    self.check(SAMPLE)
            self.check(len(self.sent))
        finally:
            self.transactions.close()
            self.producer.close()
            self.broker.close()

    # What happens

    def message(self) -> tuple[Sent, dict[str, Any]]:
        key = f"k{len(self.sent)}"
        number = self.random.choice([None, 1, 2, 3, 4])
        sent = Sent(key, [key], self.random.choice("abc"), number)
        self.sent[key] = sent
        properties = {} if number is None else {"x": str(number)}
        queue_id = self.random.randrange(QUEUES)
        options = {"keys": [key], "tags": sent.tag, "properties": properties, "queue_id": queue_id}
        return sent, options

    def send(self, _: Group) -> None:
        for _number in range(self.random.randint(1, 5)):
            sent, options = self.message()
            result = self.producer.send("T", b"", **options)
            sent.names += [result.message_id, result.offset_message_id]

    def delay(self, _: Group) -> None:
        sent, options = self.message()
        options |= self.random.choice(
            [{"delay": self.random.randint(2, 40)}, {"delay_level": self.random.randint(1, 4)}]
        )
        result = self.producer.send("T", b"", **options)
        sent.names += [result.message_id, result.offset_message_id]
        sent.end, sent.handle = Cause.DELAYED, result.recall_handle

    def recall(self, _: Group) -> None:
        for sent in self.sent.values():
            if sent.end is Cause.DELAYED and sent.handle and self.random.random() < 0.5:
                assert self.broker.delays.recall(sent.handle)
                sent.end = Cause.RECALLED

    def begin(self, _: Group) -> None:
        sent, options = self.message()
        sent.transaction = begin(self.transactions, "T", b"", **options)
        sent.names.append(sent.transaction.message_id)
        sent.end = Cause.HALF_MESSAGE

    def decide(self, _: Group) -> None:
        for sent in self.sent.values():
            if sent.end is Cause.HALF_MESSAGE and self.random.random() < 0.7:
                with suppress(TransactionDecidedError):  # it was given up: nobody decided for long
                    if self.random.random() < 0.5:
                        sent.transaction.commit()
                    else:
                        sent.transaction.rollback()
                        sent.end = Cause.ROLLED_BACK

    def find_arrived(self) -> None:
        for message in self.broker.stored("T"):
            sent = self.sent[message.keys[0]]
            if sent.place is None:
                assert sent.end in (None, Cause.DELAYED, Cause.HALF_MESSAGE)
                sent.place, sent.end = (message.queue_id, message.queue_offset), None
                sent.names.append(message.offset_message_id)

    def wait(self, _: Group) -> None:
        self.clock.advance(seconds=self.random.randint(1, 40))

    def join(self, group: Group) -> None:
        if group.member is not None:
            return
        wanted = group.new or self.random.choice(FILTERS)
        start: Any = self.random.choice(["earliest", "latest"])
        group.member = self.broker.consumer(group.name, "T", wanted.subscription, start=start)
        group.member.poll(skip=range(QUEUES))
        group.member.beat()
        if group.new is None:
            group.filter = wanted
        for queue in range(QUEUES):
            if group.offsets[queue] < 0:
                shard = self.broker.node.shard_statistics("T")[queue]
                end = shard.max_queue_offset
                group.offsets[queue] = shard.min_queue_offset if start == "earliest" else end
                for sent in self.between(queue, 0, group.offsets[queue]):
                    group.last[sent.key] = Cause.BEFORE_START

    def leave(self, group: Group) -> None:
        if group.member is not None:
            group.member.close()
            group.member = None

    def crash(self, group: Group) -> None:
        if group.member is not None:
            self.broker.faults.crash(group.member)
            group.member = None
            self.clock.advance(seconds=20)

    def consume(self, group: Group) -> None:
        if group.member is None:
            return
        for _ in range(self.random.randint(1, 4)):
            for batch in group.member.poll(max_messages=self.random.randint(1, 4)):
                self.finish(group, batch)
        group.member.beat()
        group.member.poll(skip=range(QUEUES))
        group.member.beat()

    def finish(self, group: Group, batch: Any) -> None:
        queue, end = batch.queue_id, batch.next_queue_offset
        self.find_arrived()
        matching = []
        for sent in self.between(queue, group.offsets[queue], end):
            cause = self.filter_at(group, sent).verdict(sent.tag, sent.number)
            if cause is None:
                matching.append(sent.key)
                group.had.add(sent.key)
            else:
                group.last[sent.key] = cause
        messages = batch.messages()
        assert [message.keys[0] for message in messages] == matching
        for message in messages:
            if self.random.random() < 0.2:
                self.fail(group, message, 0)
        group.member.commit("T", queue, end)
        group.offsets[queue] = end

    def fail(self, group: Group, message: StoredMessage, times: int) -> None:
        attempts = self.random.choice([0, 16])
        back = sent_back(message, group.name, attempts, dead_letter_topic(group.name))
        self.producer.forward(back.message.topic, back.queue_id, [back.message])
        before = group.retries.get(message.keys[0])
        if not (times or before is None or before.is_dead or before.is_finished):
            group.twofold.add(message.keys[0])
        now_ms, wait_ms = self.clock(), [10_000, 30_000, 60_000][min(times, 2)]
        retry = Retry(now_ms, now_ms + wait_ms, times + 1, is_dead=back.is_dead_letter)
        group.retries[message.keys[0]] = retry

    def consume_retries(self, group: Group) -> None:
        topic = retry_topic(group.name)
        with self.broker.consumer(group.name, topic, ALL) as member:
            group.reads_retries = True
            for batch in member.poll():
                for message in batch.messages():
                    if self.random.random() < 0.5 and message.reconsume_times < 3:
                        self.fail(group, message, message.reconsume_times)
                    else:
                        group.retries[message.keys[0]].is_finished = True
                member.commit(topic, batch.queue_id, batch.next_queue_offset)
            member.beat()

    def move(self, group: Group) -> None:
        found = self.described(group)
        if found is None or group.new is not None:
            return
        queue = self.random.randrange(QUEUES)
        shard = self.broker.node.shard_statistics("T")[queue]
        offset = self.random.randint(shard.min_queue_offset, shard.max_queue_offset)
        goal: dict[str, Any] = self.random.choice(
            [{"to": "latest"}, {"to": "earliest"}, {"offset": offset}]
        )
        moves = plan_moves(self.broker.node, [found], queue_id=queue, **goal)
        first_ms = self.clock()
        carry_out(self.broker.groups, moves, 30, sleep=lambda _: self.settle_later(group))
        self.settle(group)
        [moved] = moves
        to = moved.to_offset
        for sent in self.between(queue, max(group.offsets[queue], 0), to):
            cause = self.filter_at(group, sent).verdict(sent.tag, sent.number)
            group.last[sent.key] = cause or Cause.SKIPPED
        for sent in self.between(queue, to, group.offsets[queue]):
            group.rewound_ms[sent.key] = first_ms, self.clock()
        group.offsets[queue] = to

    def settle(self, group: Group) -> None:
        """Let a member give up and take up queues, without taking messages."""
        for _ in range(2):
            if group.member is not None:
                group.member.beat()
                group.member.poll(skip=range(QUEUES))

    def settle_later(self, group: Group) -> None:
        """As a command that waits: leases may have to run out."""
        self.settle(group)
        self.clock.advance(milliseconds=100)

    def migrate(self, group: Group) -> None:
        """Begin a change, where a member can carry it out; its successors end it."""
        if group.member is None or group.new is not None:
            return
        assert group.filter is not None
        new = self.random.choice(FILTERS)
        if new is group.filter:
            return
        self.broker.groups.prepare_change(group.name, "T", new.subscription)
        self.settle(group)
        self.broker.groups.switch_change(group.name, "T")
        group.new = new
        self.settle(group)
        self.settle(group)
        self.leave(group)

    def follow_change(self, group: Group) -> None:
        """A change that came to its end is over."""
        found = self.described(group)
        if group.new is not None and found is not None and found.plan is None:
            group.filter, group.new = group.new, None

    def expire(self, _: Group) -> None:
        """Have the first file of a queue removed."""
        queue = self.random.randrange(QUEUES)
        for _number in range(3):
            sent, options = self.message()
            sent.tag, sent.number = "a", None
            options |= {"queue_id": queue, "tags": "a", "properties": {}}
            result = self.producer.send("T", bytes(7 << 19), **options)
            sent.names += [result.message_id, result.offset_message_id]
        self.find_arrived()
        self.broker.topics.set_retention("T", RetentionPolicy(max_age_ms=1000))
        self.clock.advance(hours=30)
        self.has_expired = True
        self.broker.node.expire()
        self.broker.topics.set_retention("T", KEEP_ALL)
        self.find_arrived()
        for shard in self.broker.node.shard_statistics("T"):
            for sent in self.between(shard.queue_id, 0, shard.min_queue_offset):
                sent.has_expired = True

    def restart(self, _: Group) -> None:
        self.broker.faults.restart_coordinator()
        for group in self.groups:
            self.settle(group)

    # What holds

    def between(self, queue: int, first: int, end: int) -> list[Sent]:
        found = [
            sent for sent in self.sent.values()
            if sent.place is not None and sent.place[0] == queue and first <= sent.place[1] < end
            and not sent.has_expired
        ]  # fmt: skip
        return sorted(found, key=lambda sent: sent.place or (0, 0))

    def described(self, group: Group) -> GroupDescription | None:
        found = [each for each in self.broker.groups.all() if each.group == group.name]
        return next((each for each in found if each.topic == "T"), None)

    def filter_at(self, group: Group, sent: Sent) -> Filter:
        assert group.filter is not None
        assert sent.place is not None
        found = self.described(group)
        plan = None if found is None else found.plan
        queue, offset = sent.place
        is_new = plan is None or offset >= plan.switches.get(queue, offset + 1)
        return group.new if is_new and group.new is not None else group.filter

    def expected(self, group: Group, sent: Sent) -> Cause | None:
        """None: of two copies one is as good as the other, or one came while the group was moved."""
        if sent.place is None:
            assert sent.end is not None
            return sent.end
        retry = group.retries.get(sent.key)
        if retry is not None and retry.is_dead is False and self.clock() >= retry.due_ms:
            retry.stored_ms = retry.due_ms
        first_ms, last_ms = group.rewound_ms.get(sent.key, (0, 0))
        if retry is not None and retry.stored_ms >= first_ms:
            is_sure = retry.stored_ms >= last_ms and sent.key not in group.twofold
            return self.of_retry(group, retry) if is_sure else None
        if group.filter is None:
            return Cause.NOT_SUBSCRIBED if group.reads_retries else Cause.NO_GROUP
        queue, offset = sent.place
        if offset < group.offsets[queue]:
            return Cause.DELIVERED if sent.key in group.had else group.last[sent.key]
        cause = self.filter_at(group, sent).verdict(sent.tag, sent.number)
        if cause is not None:
            return Cause.DELIVERED if sent.key in group.had else cause
        return Cause.NO_CONSUMER if group.member is None else Cause.ON_ITS_WAY

    def of_retry(self, group: Group, retry: Retry) -> Cause:
        if retry.is_dead:
            return Cause.DEAD_LETTER
        if self.clock() < retry.due_ms:
            return Cause.WAITS_FOR_RETRY
        if retry.is_finished:
            return Cause.DELIVERED
        return Cause.NO_CONSUMER if group.reads_retries else Cause.NOT_ASSIGNED

    def check(self, count: int) -> None:
        for group in self.groups:
            for sent in self.random.sample([*self.sent.values()], min(count, len(self.sent))):
                name = self.random.choice(sent.names)
                found = self.broker.explain(name, group.name)
                if sent.has_expired:
                    assert found.cause in self.after_expiry(group, sent, name)
                    continue
                expected = self.expected(group, sent)
                if expected is None:
                    continue
                if expected is Cause.RECALLED and found.cause is Cause.UNKNOWN:
                    assert self.has_expired, "it may have been delivered to a file that is gone"
                    continue
                self.causes[expected] += 1
                assert found.cause is expected, self.story(group, sent, name)

    def after_expiry(self, group: Group, sent: Sent, name: str) -> set[Cause]:
        """What may be said of a message that is not there any more; of its copies, the truth."""
        if sent.key in group.retries:
            return set(Cause) - {Cause.SKIPPED, Cause.ON_ITS_WAY, Cause.BEFORE_START}
        if sent.handle is not None or sent.transaction is not None:
            return {Cause.UNKNOWN, Cause.EXPIRED, Cause.NOT_FOUND}
        return {Cause.EXPIRED if name == sent.names[-1] else Cause.NOT_FOUND}

    def story(self, group: Group, sent: Sent, name: str) -> str:
        """What is known of a wrong answer."""
        steps = self.broker.explain(name, group.name).steps
        return "\n".join(
            [
                f"{name} of {sent} for {group}, in history {self.seed}",
                *(f"step {step.stage}: {step.detail}" for step in steps),
                *(f"journal {entry}" for entry in self.broker.groups.journal(group.name)),
                f"actions {self.log}",
            ]
        )
