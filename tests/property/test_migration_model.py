"""A group that changes its filter while it reads, against lists, besides all that a group goes through.

Each queue has one offset where it switches, which stays once it is known and is not below anything
that was handed out. What is before it comes as the old filter says, what is behind it as the new
one, whoever reads, whatever crashes or starts again meanwhile: nothing is missed, and nothing else
comes. The change ends when all queues came to their switch and all members ask for the new filter.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from support.harness.machines import run
from support.models.group_machine import QUEUES, Group
from support.models.group_model import FILTERS, Filter, Reader

from rocketray.errors import StreamError
from rocketray.groups.filter_plan import FilterPlan

HISTORIES = 10
READERS_MAX = 3

readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.readers))


class Migration(Group):
    """Members ask for the old filter or for the new one while the change is under way."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.new: Filter | None = None
        self.is_switching = False
        self.switches: dict[int, int] = {}
        self.ended: list[FilterPlan] = []
        self.asked: dict[Reader, Filter] = {}
        self.model.matching = self.matching  # type: ignore[method-assign]
        self.watch_the_end()

    @precondition(lambda self: len(self.readers) < READERS_MAX)
    @rule(handlers=st.integers(1, 3), asks_new=st.booleans())
    def join(self, handlers: int, *, asks_new: bool = True) -> None:
        self.names += 1
        wanted = self.new if self.new and asks_new else self.model.filter
        name = f"m{self.names}"
        member = self.broker.consumer("g", "T", wanted.subscription, client_id=name)
        self.readers.append(Reader(self.model, name, member, handlers))
        self.asked[self.readers[-1]] = wanted

    def end_the_others(self) -> None:
        """The operator's part: whoever was silent for so long that it was not counted has to go.

        Beside others it would be refused; alone it would bring its filter with it.
        """
        for reader in self.readers[:]:
            if self.asked[reader] is not self.model.filter:
                self.crash(reader)

    @precondition(lambda self: self.readers)
    @rule(reader=readers, handlers=st.integers(1, 3))
    def replace(self, reader: Reader, handlers: int) -> None:
        """A member of the old version stops, and one of the new version starts."""
        self.leave(reader)
        self.join(handlers)

    @precondition(lambda self: self.new is None and self.names)
    @rule(number=st.integers(0, len(FILTERS) - 1), goes_on=st.booleans())
    def prepare(self, number: int, *, goes_on: bool) -> None:
        new = FILTERS[number]
        if new is self.model.filter:
            with pytest.raises(StreamError):
                self.ask("prepare_change", new.subscription)
            return
        self.ask("prepare_change", new.subscription)
        self.new = new
        if goes_on:
            self.settle()
            self.switch(is_busy=True)

    @precondition(lambda self: self.new and not self.is_switching)
    @rule(is_busy=st.booleans())
    def switch(self, *, is_busy: bool = False) -> None:
        """It is refused as long as a living member does not know of the change.

        Where it is busy, members read what comes between their proposals and the answers.
        """
        try:
            self.ask("switch_change")
        except StreamError:
            now_ms = self.broker.clock.steady()
            assert self.broker.node.state.registry.memberships.living(
                "g", "T", now_ms
            ).roster.members
        else:
            self.is_switching = True
            registry = self.broker.node.state.registry
            plan = registry.changes.get("g", "T")
            membership = registry.memberships.get("g", "T")
            known = [one.plan for one in membership.roster.members.values()]
            assert plan is not None
            assert set(known) <= {plan.version}, "a member did not know of the change"
        for _ in range(2 if is_busy else 0):
            self.advance(1)
            self.read_all()
            for queue_id in range(QUEUES):
                self.send(queue_id, ["Aa", "BB", None, "C"])
            self.read_all()

    def read_all(self) -> None:
        """All readers poll that do at all."""
        for reader in self.readers:
            if not reader.is_paused:
                reader.poll(100)

    @precondition(lambda self: self.new and self.names % 3 == 0)
    @rule()
    def abort(self) -> None:
        """It is refused when a queue has its switch, or members ask for the new filter."""
        found = self.broker.groups.change_progress("g", "T")
        try:
            self.ask("abort_change")
        except StreamError:
            return
        assert found is not None
        assert not found.plan.switches
        self.new, self.is_switching = None, False
        self.ended.clear()
        self.end_the_others()

    def change_filter(self, number: int) -> None:
        """Not here: :meth:`prepare` changes it."""

    @rule()
    def restart_coordinator(self) -> None:
        super().restart_coordinator()
        self.watch_the_end()

    @invariant()
    def the_plan_is_that_of_the_lists(self) -> None:
        self.learn()
        if self.ended:
            assert self.is_switching
            assert self.switches.keys() == set(range(QUEUES))
            assert self.new is not None
            self.model.filter, self.new, self.is_switching = self.new, None, False
            self.switches, self.ended = {}, []
            self.end_the_others()
        plan = self.broker.node.state.registry.changes.get("g", "T")
        assert (plan is None) == (self.new is None)
        assert plan is None or plan.is_switching == self.is_switching

    def matching(self, queue_id: int, start: int, stop: int) -> list[int]:
        """The offsets that the group is to get, by the filter that holds at each."""
        self.learn()
        sent = self.model.queues[queue_id].sent
        return [at for at in range(start, stop) if self.holds(queue_id, at).matches(sent[at])]

    def holds(self, queue_id: int, queue_offset: int) -> Filter:
        """The filter of one message."""
        switch = self.switches.get(queue_id)
        is_new = self.new is not None and switch is not None and queue_offset >= switch
        return self.new if is_new and self.new else self.model.filter

    def learn(self) -> None:
        """Note which queues have a switch now, or had one when the change ended."""
        plan = self.broker.node.state.registry.changes.get("g", "T") or next(iter(self.ended), None)
        for queue_id, offset in plan.switches.items() if plan and self.new else ():
            if queue_id not in self.switches:
                read = [one._positions.get(queue_id, 0) for one in self.readers]
                assert offset >= max(read, default=0), "what was read would be read otherwise"
            assert self.switches.setdefault(queue_id, offset) == offset

    def watch_the_end(self) -> None:
        """Keep the plan that the coordinator is about to forget."""
        changes: Any = self.broker.node.state.registry.changes
        forget = changes.end

        def end(group: str, topic: str) -> None:
            self.ended.append(changes.get(group, topic))
            forget(group, topic)

        changes.end = end

    def ask(self, question: Any, *arguments: Any) -> None:
        """Ask the coordinator about the group."""
        getattr(self.broker.groups, question)("g", "T", *arguments)

    def heal(self) -> None:
        """A change that is under way comes to its end first."""
        self.advance(60)
        if self.new is not None:
            for reader in self.readers[:]:
                self.leave(reader)
            self.join(1)
            self.settle()
            self.the_plan_is_that_of_the_lists()
            if self.new is not None and not self.is_switching:
                self.switch()
                assert self.is_switching
            for _ in range(5):
                self.settle()
                for delivery in self.readers[0].working():
                    self.readers[0].finish(delivery, 1000)
                self.readers[0].commit()
                self.check_offsets()
            self.the_plan_is_that_of_the_lists()
            assert self.new is None, "the change does not end"
        super().heal()


@pytest.mark.timeout(600)
def test_hundreds_of_steps(seed: int, amount: Callable[[int], int]) -> None:
    run(Migration, amount(HISTORIES), seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(seed: int) -> None:
    histories = int(os.environ.get("ROCKETRAY_TEST_HISTORIES", str(10 * HISTORIES)))
    run(Migration, histories, seed)
