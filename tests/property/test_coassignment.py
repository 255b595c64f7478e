"""Instances of one app under any sequence of events: no queue number is ever with two of them.

Members here do what a real one does, at any time and in any order: they hold what they were
granted, give up later what they are not granted any more, miss heartbeats, lose the answers to
them, leave, crash and come back.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.harness.machines import run_histories

from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import AppInstance, Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS

ALL = Subscription.tags("*")
INSTANCES = st.integers(0, 3)
PLACES = st.integers(0, 3)


class Member:
    """One member of an instance, in one group and topic."""

    def __init__(self, place: tuple[str, str], name: str, life: int, app: AppInstance) -> None:
        self.place = place
        self.name = name
        self.life = f"{name}{life}"
        self.app = app
        self.granted: frozenset[int] = frozenset()
        self.reading: frozenset[int] = frozenset()
        self.beats = 0

    @property
    def held(self) -> frozenset[int]:
        return self.granted | self.reading

    def beat(self) -> Heartbeat:
        self.beats += 1
        return Heartbeat(
            *self.place, ALL, self.name, self.life, self.held, together=self.app, number=self.beats
        )


class Coassignment(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.registry = GroupRegistry()
        self.now_ms = 0
        self.lives = 0
        self.members: dict[tuple[int, int], Member] = {}
        self.places: list[tuple[str, str]] = []
        self.queues: dict[str, int] = {}

    @initialize(counts=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def make_topics(self, counts: list[int]) -> None:
        self.queues = {f"T{number}": count for number, count in enumerate(counts)}
        self.places = [(f"g{topic}", topic) for topic in self.queues] + [("again", "T0")]

    @rule(instance=INSTANCES, place=PLACES)
    def join(self, instance: int, place: int) -> None:
        place %= len(self.places)
        if (instance, place) not in self.members:
            self.lives += 1
            app = AppInstance("app", f"i{instance}")
            member = Member(self.places[place], f"i{instance}", self.lives, app)
            self.members[instance, place] = member
            self.send(member)

    @rule(instance=INSTANCES, place=PLACES, lost=st.booleans())
    def heartbeat(self, instance: int, place: int, lost: bool) -> None:
        member = self.members.get((instance, place % len(self.places)))
        if member is not None:
            self.send(member, lost=lost)

    @rule(instance=INSTANCES, place=PLACES)
    def adopt(self, instance: int, place: int) -> None:
        """Begin to read what is granted, and stop to read what is not."""
        member = self.members.get((instance, place % len(self.places)))
        if member is not None:
            member.reading = member.granted

    @rule(instance=INSTANCES, place=PLACES)
    def leave(self, instance: int, place: int) -> None:
        member = self.members.pop((instance, place % len(self.places)), None)
        if member is not None:
            self.registry.leave(member.beat())

    @rule(instance=INSTANCES)
    def crash(self, instance: int) -> None:
        self.members = {key: one for key, one in self.members.items() if key[0] != instance}

    @rule(ms=st.integers(0, 9000))
    def pass_time(self, ms: int) -> None:
        """Everybody alive says so in time: what a lease is for is tested elsewhere."""
        for member in self.members.values():
            self.send(member)
        self.now_ms += ms

    def send(self, member: Member, *, lost: bool = False) -> None:
        queues = self.queues[member.place[1]]
        reply = self.registry.heartbeat(member.beat(), queues, self.now_ms)
        if not lost:
            member.granted = frozenset(reply.granted)

    @invariant()
    def no_number_is_with_two_instances(self) -> None:
        readers: dict[int, set[str]] = {}
        for member in self.members.values():
            for queue in member.held:
                readers.setdefault(queue, set()).add(member.app.instance)
        assert all(len(instances) == 1 for instances in readers.values()), readers

    def teardown(self) -> None:
        """Left alone, the instances come to equal shares, and every queue has a reader."""
        self.pass_time(SESSION_TIMEOUT_MS - 1)
        for _ in range(12):
            self.now_ms += 1
            for member in self.members.values():
                self.send(member)
                member.reading = member.granted
            self.no_number_is_with_two_instances()
        whole = {
            instance
            for instance in range(4)
            if all((instance, place) in self.members for place in range(len(self.places)))
        }
        if not whole or {key[0] for key in self.members} != whole:
            return  # an instance that lacks an agent leaves that agent's share to nobody
        sizes = Counter(dict.fromkeys(whole, 0))
        for place, (_, topic) in enumerate(self.places):
            read = [queue for one in whole for queue in self.members[one, place].reading]
            assert sorted(read) == list(range(self.queues[topic]))
        for instance in whole:
            numbers = [self.members[instance, place].reading for place in range(len(self.places))]
            sizes[instance] = len(frozenset().union(*numbers))
        assert max(sizes.values()) - min(sizes.values()) <= 1


def test_no_number_is_with_two_instances(seed: int) -> None:
    run_histories(Coassignment, seed, 60, 30)
