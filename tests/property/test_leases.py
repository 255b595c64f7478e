"""Members, a coordinator and time in any order: no queue is ever handed out by two members.

Each member here keeps the rules that a real one keeps, and everything else may happen: it is
stopped for as long as you like, its heartbeats are not answered, are handled late or twice, the
answers are lost or come when its lease is over, another process takes its name, the coordinator dies
and starts again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.harness.machines import run_histories

from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.assignment import Strategy
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.messaging.consumers.member_session import MemberSession

ALL = Subscription.tags("*")
QUEUES = 4
NAMES = st.sampled_from(["a", "b", "c"])
ACTIONS = st.sampled_from(
    [
        "finish",
        "work",
        "work",
        "work",
        "beat",
        "begin to poll",
        "again",
        "again",
        "lose the answer",
        "replace",
    ]
)
STEPS = st.lists(st.tuples(NAMES, ACTIONS), max_size=20)


class Member:
    """As GroupConsumer: a heartbeat thread, and a polling thread that reads what was granted.

    Opening a queue takes as long as the steps between :meth:`begin_poll` and :meth:`end_poll`.
    """

    def __init__(self, world: Leases, name: str) -> None:
        self.world = world
        self.name = name
        self.life = f"{name}{world.lives}"
        member = Heartbeat(
            "g", "T", ALL, name, self.life, frozenset(), strategy=world.strategy
        )  # fmt: skip
        self.session = MemberSession(member, lambda: world.now_ms)
        self.opening: dict[int, int] = {}
        self.has_failed = False

    def report(self, *, delay_ms: int, lost: bool) -> None:
        def send(beat: Heartbeat) -> HeartbeatReply:
            self.world.sent.append(beat)
            self.world.now_ms += delay_ms
            reply = self.world.registry.heartbeat(beat, QUEUES, self.world.now_ms)
            self.world.now_ms += delay_ms
            if lost:
                raise ShardUnavailableError("the coordinator", "the answer was lost by the test", 0)
            return reply

        try:
            self.session.beat(send)
        except ShardUnavailableError:
            pass
        except StreamError:
            self.has_failed = True  # another process has its name: its polls raise from now on

    def begin_poll(self) -> None:
        """Revoke what is lost, and begin to open what is new."""
        self.session.revoke(self.session.lost())
        self.opening = self.session.assign()

    def end_poll(self) -> None:
        for queue_id, offset in self.opening.items():
            self.session.begin(queue_id, max(offset, 0))
        self.opening = {}

    def poll(self) -> None:
        self.begin_poll()
        self.end_poll()

    def finish(self) -> None:
        """Commit one more message of each queue, also without a lease: the handler had begun."""
        for queue_id, offset in self.session.finished().items():
            self.session.commit(queue_id, offset + 1)

    @property
    def hands_out(self) -> frozenset[int]:
        return (
            frozenset(self.session.finished())
            if not self.has_failed and self.session.lease.is_running
            else frozenset()
        )


class Leases(RuleBasedStateMachine):
    @initialize(strategy=st.sampled_from(get_args(Strategy)), steps=STEPS)
    def begin(self, strategy: Strategy, steps: list[tuple[str, str]]) -> None:
        self.strategy = strategy
        self.registry = GroupRegistry()
        self.now_ms = 0
        self.lives = 0
        self.members: dict[str, Member] = {}
        self.stopped: list[Member] = []
        self.sent: list[Heartbeat] = []
        self.offsets = [-1] * QUEUES
        self.join("a")
        self.join("b")
        self.do_much_in_no_time(steps)

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        if name not in self.members:
            self.lives += 1
            self.members[name] = Member(self, name)
            self.members[name].report(delay_ms=0, lost=False)
            self.members[name].poll()

    @rule(name=NAMES, lost=st.booleans(), delay_ms=st.sampled_from([0, 900, 3000, 9000]))
    def heartbeat(self, name: str, lost: bool, delay_ms: int) -> None:
        if name in self.members:
            self.members[name].report(delay_ms=delay_ms, lost=lost)

    @rule(names=st.sets(NAMES))
    def work(self, names: set[str]) -> None:
        for name in names & self.members.keys():
            self.members[name].report(delay_ms=0, lost=False)
            self.members[name].poll()

    @rule(name=NAMES)
    def poll(self, name: str) -> None:
        if name in self.members:
            self.members[name].poll()

    @rule(steps=STEPS)
    def do_much_in_no_time(self, steps: list[tuple[str, str]]) -> None:
        """While all leases run, so that nothing but the grants keeps members apart."""
        for name, action in steps:
            member = self.members.get(name)
            if member is None:
                self.join(name)
            else:
                self.act(member, action)
            self.no_queue_is_handed_out_by_two()

    def act(self, member: Member, action: str) -> None:
        if action == "finish":
            member.finish()
        elif action == "beat":
            member.report(delay_ms=0, lost=False)
        elif action == "lose the answer":
            member.report(delay_ms=0, lost=True)
        elif action == "begin to poll":
            member.begin_poll()
        elif action == "work":
            member.end_poll()
            member.report(delay_ms=0, lost=False)
            member.poll()
        elif action == "replace":
            self.replace(member.name)
        else:  # late, or twice; whoever waited for the answer has it, or does so no more
            sent = [beat for beat in self.sent if beat.instance == member.life]
            for beat in sent[-2:]:
                with suppress(StreamError):  # another process has the member's name by now
                    self.registry.heartbeat(beat, QUEUES, self.now_ms)

    @rule(name=NAMES)
    def replace(self, name: str) -> None:
        """Another process joins under the name of one that was stopped, and may go on."""
        if name in self.members:
            self.stopped.append(self.members.pop(name))
            self.join(name)

    @rule()
    def stopped_ones_go_on(self) -> None:
        for member in self.stopped:
            member.report(delay_ms=0, lost=False)
            member.poll()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is not None:
            self.registry.leave(member.session.leave())

    @rule(name=NAMES)
    def crash(self, name: str) -> None:
        self.members.pop(name, None)

    @rule(name=NAMES)
    def finish(self, name: str) -> None:
        for member in [*self.stopped, *filter(None, [self.members.get(name)])]:
            member.finish()

    @rule()
    def restart_the_coordinator(self) -> None:
        old, self.registry = self.registry, GroupRegistry()
        self.registry.load(json.loads(json.dumps(old.to_json())), self.now_ms)

    @rule(ms=st.sampled_from([900, 5000, 7500, 9000, 10_001]))
    def everything_stands_still(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: hasattr(self, "members"))
    @invariant()
    def no_queue_is_handed_out_by_two(self) -> None:
        every = [*self.members.values(), *self.stopped]
        handed_out = [queue for member in every for queue in member.hands_out]
        assert len(handed_out) == len(set(handed_out)), handed_out

    @precondition(lambda self: hasattr(self, "members"))
    @invariant()
    def no_commit_undoes_what_others_finished(self) -> None:
        for queue_id, before in enumerate(self.offsets):
            self.offsets[queue_id] = self.registry.offsets.get("g", "T", queue_id)
            assert self.offsets[queue_id] >= before

    def teardown(self) -> None:
        """Members that work get all queues, whatever was before."""
        if not getattr(self, "members", None):
            return
        self.now_ms += 2 * SESSION_TIMEOUT_MS
        for name in [name for name, member in self.members.items() if member.has_failed]:
            self.replace(name)
        for _ in range(8):
            self.now_ms += 1000
            self.work(set(self.members))
            self.no_queue_is_handed_out_by_two()
        shares = [member.hands_out for member in self.members.values()]
        assert sorted(queue for share in shares for queue in share) == list(range(QUEUES))
        if self.strategy != "consistent_hash":
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.proves("groups", "No two members deliver from one queue at the same time")
def test_no_queue_is_handed_out_by_two(seed: int) -> None:
    run_histories(Leases, seed, 150, 20)
