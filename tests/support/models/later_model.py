"""Messages that are not delivered at once, as Python lists: transactions, delays, recalls.

A half message comes to its topic after it was committed, once, and never before or without that:
the first decision counts, and who decides hears which one that was. A delayed message comes once, not before it is due, unless it was
recalled; then never. Those that go to one queue come in the order in which they are due. What
nobody decides is asked about when it is due to be asked, and ends in a topic of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.models.group_model import GroupModel, Sent

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import GIVEN_UP_TOPIC
from rocketray.base.transaction import Decider, Outcome, Verdict
from rocketray.message import StoredMessage
from rocketray.messaging.producers.transactional_sends import Transaction
from rocketray.store.age_clock import SETTLING_MS
from rocketray.testing import Broker

TOPIC = "T"
TICK_MS = 1_000
_NEVER = -(10**18)
_PAUSE_MAX_MS = 61_000  # how long the node leaves a target alone that failed
_CHECK_AFTER_MS = 6_000
_CHECK_INTERVAL_MS = 30_000
_CHECKS_MAX = 15
_CHECKS_AT_ONCE = 32
_AGE_MAX_MS = 72 * 3_600_000


@dataclass
class Half:
    """A message of a transaction."""

    group: str
    queue_id: int
    level: int
    unique_key: str
    half_place: tuple[int, int]
    begun_ms: int
    transaction: Transaction | None
    """Where it is open in this process: then nobody answers for it."""
    outcome: Outcome | None = None
    decided_ms: int = 0
    decider: Decider = "producer"
    is_promised: bool = False
    """A commit returned without an error: so it has to come."""
    checks: int = 0
    asked_ms: int = _NEVER
    seen_ms: int = _NEVER
    """When the service that runs now saw it first, if it is not the one of its beginning."""
    is_over: bool = False
    """It came, was rolled back, or was given up."""

    @property
    def due_ms(self) -> int:
        """When it may come, if it was committed."""
        return self.decided_ms + (DELAY_LEVELS_MS[self.level - 1] if self.level else 0)


@dataclass
class Later:
    """A message that was sent with a delay."""

    queue_id: int
    due_ms: int
    handle: str
    has_come: bool = False
    is_recalled: bool = False


class LaterModel(GroupModel):
    """What waits, and what has come, by the name of each message."""

    def __init__(self, broker: Broker, queues: int) -> None:
        super().__init__(queues, self._heard, lambda _: False)
        self.broker = broker
        self.sent: set[int] = set()
        """Messages that were stored in the topic at once."""
        self.halves: dict[int, Half] = {}
        self.later: dict[int, Later] = {}
        self.given_up: set[int] = set()
        self.tolerant_until_ms = 0
        self._settled_ms = broker.clock() + SETTLING_MS
        self._last_due_ms = [0] * queues
        self._given_up_seen = 0

    def decide(self, name: int, outcome: Outcome, decider: Decider = "producer") -> Verdict:
        """A producer decided; what was decided before stays. What counts."""
        half = self.halves[name]
        if half.outcome is None and not half.is_over:
            half.outcome, half.decided_ms = outcome, self.broker.clock()
            half.is_over, half.decider = outcome == "rollback", decider
        if half.outcome is None:
            return Verdict("abandon", half.decided_ms, "node")
        return Verdict(half.outcome, half.decided_ms, half.decider)

    def to_ask(self, group: str) -> list[int]:
        """The messages that a producer of *group* is asked about now, which counts."""
        now_ms = self.broker.clock()
        due = [
            name
            for name, half in self.halves.items()
            if half.group == group
            and half.outcome is None
            and not half.is_over
            and now_ms - self._age_from_ms(half, now_ms) >= _CHECK_AFTER_MS
            and now_ms - half.asked_ms >= _CHECK_INTERVAL_MS
            and half.checks < _CHECKS_MAX
        ][:_CHECKS_AT_ONCE]
        for name in due:
            self.halves[name].asked_ms = now_ms
            self.halves[name].checks += 1
        return due

    def undecided(self) -> list[int]:
        """The halves that wait for a decision."""
        return [n for n, half in self.halves.items() if half.outcome is None and not half.is_over]

    def host_restarted(self) -> None:
        """It does not remember when it asked, and may not trust the times of its halves yet."""
        for half in self.halves.values():
            half.asked_ms, half.seen_ms = _NEVER, self.broker.clock()

    def _age_from_ms(self, half: Half, now_ms: int) -> int:
        """From when the age of a half counts: see :class:`AgeClock`."""
        is_settled = now_ms >= self._settled_ms
        return half.begun_ms if is_settled else max(half.begun_ms, half.seen_ms)

    def tolerate(self) -> None:
        """A queue does not take messages, so that deliveries are late."""
        self.tolerant_until_ms = self.broker.clock() + _PAUSE_MAX_MS

    def observe(self) -> None:
        """Take note of what came; each has its reason."""
        for queue_id, queue in enumerate(self.queues):
            while (stored := self.broker.messages.at(TOPIC, queue_id, len(queue.sent))) is not None:
                self._came(queue_id, stored)
                queue.sent.append(Sent("C", int(stored.body)))
        if GIVEN_UP_TOPIC in self.broker.topics.all():
            end = self.broker.node.shard(GIVEN_UP_TOPIC, 0).writer.control.visible()
            for offset in range(self._given_up_seen, end):
                stored = self.broker.messages.at(GIVEN_UP_TOPIC, 0, offset)
                assert stored is not None
                self._gave_up(int(stored.body), stored)
            self._given_up_seen = end

    def check_times(self) -> None:
        """Nothing that may come is missing."""
        self.observe()
        now_ms = self.broker.clock()
        if now_ms <= self.tolerant_until_ms:
            return
        for name, half in self.halves.items():
            if half.outcome == "commit" and not half.is_over:
                assert half.due_ms >= now_ms - TICK_MS, f"{name} was committed and did not come"
            assert half.outcome or half.is_over or not self._is_hopeless(half, TICK_MS)
        for name, one in self.later.items():
            if not one.has_come and not one.is_recalled:
                assert one.due_ms >= now_ms - TICK_MS, f"{name} is due and did not come"

    def check_end(self) -> None:
        """All is over: exactly what was sent, committed, or delayed and not recalled has come."""
        come = [sent.number for queue in self.queues for sent in queue.sent]
        committed = {name for name, half in self.halves.items() if half.outcome == "commit"}
        delayed = {name for name, one in self.later.items() if not one.is_recalled}
        assert sorted(come) == sorted(self.sent | committed | delayed)
        assert {name for name, half in self.halves.items() if half.is_promised} <= set(come)
        rolled_back = {name for name, half in self.halves.items() if half.outcome == "rollback"}
        assert self.given_up == self.halves.keys() - committed - rolled_back

    def _came(self, queue_id: int, stored: StoredMessage) -> None:
        name = int(stored.body)
        if name in self.halves:
            half = self.halves[name]
            assert half.outcome == "commit", f"{name} came and was not committed"
            assert not half.is_over, f"{name} came twice"
            assert (half.queue_id, half.unique_key) == (queue_id, stored.unique_key)
            assert half.due_ms <= stored.store_timestamp_ms, f"{name} came too early"
            half.is_over = True
        elif name in self.later:
            one = self.later[name]
            assert not one.is_recalled, f"{name} came after it was recalled"
            assert not one.has_come, f"{name} came twice"
            assert one.queue_id == queue_id
            assert one.due_ms <= stored.store_timestamp_ms, f"{name} came too early"
            assert one.due_ms >= self._last_due_ms[queue_id], f"{name} was overtaken"
            self._last_due_ms[queue_id] = one.due_ms
            one.has_come = True
        else:
            assert name in self.sent

    def _gave_up(self, name: int, stored: StoredMessage) -> None:
        half = self.halves[name]
        assert half.outcome is None
        assert not half.is_over
        assert half.unique_key == stored.unique_key
        assert self._is_hopeless(half, 0)
        half.is_over, half.decided_ms = True, stored.store_timestamp_ms
        self.given_up.add(name)

    def _is_hopeless(self, half: Half, more_ms: int) -> bool:
        """Nobody decided it for long, by so much at least."""
        now_ms = self.broker.clock() - more_ms
        is_asked = half.checks >= _CHECKS_MAX and now_ms - half.asked_ms >= _CHECK_INTERVAL_MS
        return is_asked or now_ms - half.begun_ms >= _AGE_MAX_MS

    def _heard(self, queue_id: int) -> int:
        return self.broker.node.state.registry.offsets.get("g", TOPIC, queue_id)
