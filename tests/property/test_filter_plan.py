"""A group changes its filter while members, coordinator and time do what they like.

Below a queue's switch everything that the old filter matches is delivered, by the old filter; from
it on everything that the new one matches, by the new one, until the next change, which may lead back
while members still ask for the old one. Whoever crashed, joined or restarted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.harness.machines import run_histories

from rocketray.errors import StreamError, SubscriptionConflictError
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import FilterPlan, PlanFollower
from rocketray.groups.group_administration import GroupAdministration
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS

OLD, NEW = Subscription.sql("n % 2 = 0"), Subscription.sql("n % 3 = 0")
QUEUES = 2
NAMES = st.sampled_from(["a", "b", "c"])
QUEUE = st.integers(0, QUEUES - 1)


def matches(subscription: Subscription, offset: int) -> bool:
    return offset % (2 if subscription == OLD else 3) == 0


class Member:
    """As GroupConsumer, with a queue that is a number of messages."""

    def __init__(self, world: Migration, name: str, declared: Subscription) -> None:
        self.world = world
        self.name = name
        self.life = f"{name}{world.lives}"
        self.declared = declared
        self.follower = PlanFollower(declared)
        self.granted: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.commits: dict[int, int] = {}
        self.beats = 0

    def beat(self) -> Heartbeat:
        self.beats += 1
        commits, self.commits = self.commits, {}
        held = frozenset(self.granted) | frozenset(self.positions)
        return Heartbeat(
            "g", "T", self.declared, self.name, self.life, held, commits,
            number=self.beats, plan=self.follower.version, switches=self.follower.proposals(),
        )  # fmt: skip

    def report(self, *, lost: bool = False) -> None:
        beat = self.beat()
        before = self.world.registry.changes.get("g", "T")
        reply = self.world.registry.heartbeat(beat, QUEUES, self.world.now_ms)
        self.world.save()
        if before is not None and reply.plan is None:  # the last proposals ended the change
            self.world.note_switches(before.with_switches(beat.switches))
        if not lost:
            self.follower.plan = reply.plan
            self.granted = dict(reply.granted)

    def poll(self, count: int) -> None:
        for queue in self.positions.keys() - self.granted.keys():
            del self.positions[queue]
            self.follower.forget_queue(queue)
        for queue in self.granted.keys() - self.positions.keys():
            self.positions[queue] = max(0, self.granted[queue])
            self.commits.setdefault(queue, self.positions[queue])
        for queue, position in self.positions.items():
            end = self.world.ends[queue]
            part = self.follower.part(queue, position, lambda end=end: end)  # type: ignore[misc]
            stop = min(end, position + count, *([] if part.stop is None else [part.stop]))
            for offset in range(position, stop):
                if matches(part.subscription, offset):
                    self.world.delivered.add((queue, offset, part.subscription == NEW))
            self.positions[queue] = max(position, stop)


class Migration(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.registry = GroupRegistry()
        self.administration = GroupAdministration(self.registry, self.request, self.request)
        self.now_ms = self.lives = 0
        self.ends = [5] * QUEUES
        self.delivered: set[tuple[int, int, bool]] = set()
        self.plans: dict[int, tuple[Subscription, dict[int, int]]] = {}  # by version
        self.members: dict[str, Member] = {}
        self.join("a", is_new=False)
        self.join("b", is_new=False)

    @rule(name=NAMES, is_new=st.booleans())
    def join(self, name: str, is_new: bool) -> None:
        if name not in self.members:
            self.lives += 1
            member = Member(self, name, NEW if is_new else OLD)
            with contextlib.suppress(SubscriptionConflictError):
                member.report()
                self.members[name] = member

    @rule(name=NAMES, count=st.integers(0, 6))
    def work(self, name: str, count: int) -> None:
        if name in self.members:
            self.members[name].poll(count)
            self.members[name].report()

    @rule(name=NAMES, lost=st.booleans())
    def heartbeat(self, name: str, lost: bool) -> None:
        if name in self.members:
            self.members[name].report(lost=lost)

    @rule(name=NAMES)
    def commit(self, name: str) -> None:
        if name in self.members:
            self.members[name].commits.update(self.members[name].positions)

    @rule(queue=QUEUE, count=st.integers(1, 5))
    def send(self, queue: int, count: int) -> None:
        self.ends[queue] += count

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        if name in self.members and len(self.members) > 1:
            self.registry.leave(self.members.pop(name).beat())

    @rule(name=NAMES)
    def crash(self, name: str) -> None:
        if name in self.members and len(self.members) > 1:
            del self.members[name]
            self.now_ms += SESSION_TIMEOUT_MS - 1
            for member in self.members.values():
                member.report()
            self.now_ms += 2

    @rule()
    def restart_the_coordinator(self) -> None:
        self.registry = GroupRegistry()
        self.registry.load(json.loads(self.saved), self.now_ms)
        self.administration = GroupAdministration(self.registry, self.request, self.request)

    @rule(is_new=st.booleans())
    def prepare(self, is_new: bool) -> None:
        self.ask("prepare_change", NEW if is_new else OLD)

    @rule()
    def switch(self) -> None:
        self.ask("switch_change")

    @rule()
    def abort(self) -> None:
        self.ask("abort_change")

    def request(self) -> contextlib.AbstractContextManager[int]:
        return contextlib.nullcontext(self.now_ms)

    def ask(self, question: str, *arguments: object) -> None:
        self.now_ms += 1
        with contextlib.suppress(StreamError):
            getattr(self.administration, question)("g", "T", *arguments)
            self.save()

    def save(self) -> None:
        """As the coordinator does before it answers."""
        registry = self.registry
        self.saved = json.dumps(registry.to_json())
        plan = registry.changes.get("g", "T")
        if plan is not None:
            self.note_switches(plan)

    def note_switches(self, plan: FilterPlan) -> None:
        _, switches = self.plans.setdefault(plan.version, (plan.new, {}))
        for queue, offset in plan.switches.items():
            assert switches.setdefault(queue, offset) == offset, "a switch never moves"

    def is_new(self, queue: int, offset: int) -> bool:
        """Whether the new filter holds for a message: the last change that switched before it says."""
        found = OLD
        for _, (new, switches) in sorted(self.plans.items(), key=lambda each: each[0]):
            if offset >= switches.get(queue, offset + 1):
                found = new
        return found == NEW

    @invariant()
    def each_filter_delivers_on_its_own_side_of_the_switch(self) -> None:
        for queue, offset, is_new in getattr(self, "delivered", ()):
            assert is_new == self.is_new(queue, offset)

    def teardown(self) -> None:
        """The change comes to its end, and nothing was missed on either side."""
        if not hasattr(self, "members"):
            return
        for _ in range(20):
            self.prepare(is_new=True)  # as soon as one that leads back has switched
            self.everyone_works()
            self.switch()  # as soon as those are forgotten who crashed
        for name in [name for name, member in self.members.items() if member.declared == OLD]:
            self.registry.leave(self.members.pop(name).beat())
        self.join("new", is_new=True)
        for _ in range(20):
            self.everyone_works()
        assert self.registry.subscriptions.get("g", "T") == NEW
        assert self.registry.changes.get("g", "T") is None
        for queue, end in enumerate(self.ends):
            for offset in range(end):
                is_new = self.is_new(queue, offset)
                if matches(NEW if is_new else OLD, offset):
                    assert (queue, offset, is_new) in self.delivered
        self.each_filter_delivers_on_its_own_side_of_the_switch()

    def everyone_works(self) -> None:
        self.now_ms += 1000
        for name, member in list(self.members.items()):
            self.work(name, 1000)
            member.commits.update(member.positions)
            member.report()


@pytest.mark.proves("groups", "Each filter delivers only on its own side of the switch")
def test_each_filter_delivers_on_its_own_side(seed: int, amount: Callable[[int], int]) -> None:
    run_histories(Migration, seed, amount(70), 30)
