"""The rules by which apps that read one topic are tried: send, poll, finish, raise, crash, and so on.

A machine for each way to treat what fails derives from this one. Each step is checked by the model
(retry_model.py) as it happens, and by the invariants here when it is over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from support.models.app_history import GROUP, LADDER_S, QUEUES, SYSTEM_QUEUES, AppHistory
from support.models.group_model import FILTERS, SESSION_S, SURE_SILENCE_MS, Sent
from support.models.stepped_app import TOPIC, Handler, SteppedApp

from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import retry_topic
from rocketray.errors import ShardUnavailableError
from rocketray.message import Message
from rocketray.messaging.api.node_client import lag_of
from rocketray.services.admin.dead_letters import letter_boxes, redrive

APPS_MAX = 3

queue_ids = st.integers(0, QUEUES - 1)
tags = st.sampled_from([None, "Aa", "BB", "C"])
filters = st.sampled_from([0, 0, 1, 2, 3])
apps = st.runner().flatmap(lambda machine: st.sampled_from(machine.apps))
idle = st.runner().flatmap(lambda machine: st.sampled_from(machine.handlers(busy=False)))
busy = st.runner().flatmap(lambda machine: st.sampled_from(machine.handlers(busy=True)))
system_queues = st.sampled_from(SYSTEM_QUEUES)


class AppMachine(AppHistory):
    """Apps of one group, with the rules for failures that :meth:`failure_rules` gives."""

    @initialize(rules=st.integers(0, 3), number=filters)
    def begin(self, rules: int, number: int) -> None:
        self.model.rules = self.failure_rules(rules)
        self.model.filter = FILTERS[number]
        self.join(2)

    # What apps do

    @rule(queue_id=queue_ids, new=st.lists(tags, min_size=1, max_size=9))
    def send(self, queue_id: int, new: list[str | None]) -> None:
        sent = [Sent(tag, name % 11, name) for tag in new for name in [next(self.numbers)]]
        self.producer.send_many(TOPIC, [_message(one) for one in sent], queue_id=queue_id)
        self.model.send(queue_id, sent)

    @precondition(lambda self: len(self.apps) < APPS_MAX)
    @rule(handlers=st.integers(1, 3))
    def another_joins(self, handlers: int) -> None:
        self.join(handlers)

    @precondition(lambda self: self.apps)
    @rule(app=apps)
    def poll(self, app: SteppedApp) -> None:
        self.do(app.step())

    @precondition(lambda self: self.handlers(busy=False))
    @rule(handler=idle, as_list=st.booleans())
    def take(self, handler: Handler, *, as_list: bool) -> None:
        """A handler goes on with a message, or a list; it may be slow."""
        self.do(handler.begin(as_list=as_list))

    @precondition(lambda self: self.handlers(busy=True))
    @rule(handler=busy)
    def finish(self, handler: Handler) -> None:
        handler.finish()

    @precondition(lambda self: self.handlers(busy=True))
    @rule(handler=busy, number=st.none() | st.integers(0, 8))
    def fail(self, handler: Handler, number: int | None) -> None:
        """A handler raises, perhaps saying on which message of its list."""
        self.do(self.failed(handler, number))

    @precondition(lambda self: self.apps)
    @rule(
        queue_id=queue_ids,
        new=st.lists(tags, min_size=3, max_size=9),
        outcomes=st.lists(st.sampled_from([True, False, False]), min_size=4, max_size=20),
        is_done=st.booleans(),
    )
    def work(
        self, queue_id: int, new: list[str | None], outcomes: list[bool], *, is_done: bool
    ) -> None:
        """More comes, apps read it, and handlers go through some of it, failing often."""
        self.send(queue_id, new)
        left = deque(outcomes)
        for app in self.apps:
            self.do(app.step())
            for handler in app.handlers:
                while left and (handler.hand or self.do(handler.begin(as_list=False))):
                    if left.popleft():
                        handler.finish()
                    else:
                        self.do(self.failed(handler, None))
            if is_done:
                app.commit()

    @precondition(lambda self: self.apps)
    @rule(app=apps)
    def commit(self, app: SteppedApp) -> None:
        app.commit()

    @precondition(lambda self: self.apps)
    @rule(app=apps, is_sudden=st.booleans())
    def end(self, app: SteppedApp, *, is_sudden: bool) -> None:
        """An app stops in order, or is killed."""
        if is_sudden:
            self.model.is_calm = False
            app.is_excused = True
        self.do(app.crash() if is_sudden else app.leave())
        self.model.ended(app)
        self.apps.remove(app)

    # What happens to them

    @rule(seconds=st.sampled_from([0.1, 1, 1, 3, 5, 11, 31]))
    def pass_time(self, seconds: float) -> None:
        self.advance(seconds)

    @rule(seconds=st.sampled_from([61, 700, LADDER_S]))
    def hours_pass(self, seconds: float) -> None:
        """Retries of later attempts come."""
        self.pass_long(seconds)

    @rule()
    def queues_settle(self) -> None:
        self.settle()

    @precondition(lambda self: self.apps)
    @rule(app=apps, seconds=st.sampled_from([2, 9, 30]))
    def lose_heartbeats(self, app: SteppedApp, seconds: int) -> None:
        for feed in app.feeds.values():
            if (
                feed.beats != feed.member._session._beats
            ):  # else it was not heard since it last fell silent
                feed.silent_since_ms, feed.beats = self.broker.clock(), feed.member._session._beats
            self.broker.faults.silence(feed.member, seconds=seconds)
            if feed.member.silent_until_ms - feed.silent_since_ms > SURE_SILENCE_MS:
                app.is_excused = True
                self.model.is_calm = False

    @precondition(lambda self: self.apps)
    @rule(app=apps)
    def close_or_open_the_road(self, app: SteppedApp) -> None:
        """What an app gives back does not arrive, or does again."""
        if app.road.is_set():
            app.road.clear()
        else:
            app.road.set()
            self.do(app.flush())

    @rule(place=system_queues, is_stored=st.booleans())
    def let_an_append_fail(self, place: tuple[str, int], *, is_stored: bool) -> None:
        """The next batch for a queue is refused, or its answer is lost."""
        if place in self.places():
            self.model.has_lost_answers |= is_stored
            (self.broker.faults.lose_acks if is_stored else self.broker.faults.fail_appends)(
                1, *place
            )

    @rule(part=st.sampled_from(["coordinator", "filter", "host", "shard"]), queue_id=queue_ids)
    def restart(self, part: str, queue_id: int) -> None:
        """A part of the node starts again, as after a crash of its process."""
        if part == "coordinator":
            self.restart_coordinator()
        elif part == "filter":
            self.broker.faults.restart_filter()
        elif part == "shard":
            self.broker.faults.restart_shard(TOPIC, queue_id)
        elif SCHEDULE_TOPIC in self.broker.topics.all():
            self.broker.faults.restart_shard(SCHEDULE_TOPIC)

    def restart_coordinator(self) -> None:
        """It forgets what it heard since it last saved offsets."""
        self.broker.faults.restart_coordinator()
        self.restarted = True
        self.model.is_calm = False

    @precondition(lambda self: self.apps)
    @rule(number=filters)
    def change_filter(self, number: int) -> None:
        """All stop, and come again with another subscription, which does not hold for retries."""
        while self.apps:
            self.end(self.apps[0], is_sudden=False)
        self.advance(SESSION_S + 1)  # members that crashed are given up
        self.check_offsets()
        self.model.filter = FILTERS[number]
        self.join(1)

    @precondition(lambda self: self.model.letters)
    @rule(limit=st.integers(1, 4), number=filters)
    def redrive(self, limit: int, number: int) -> None:
        """Some dead letters are delivered once more, each once."""
        chosen, letters = FILTERS[number], self.model.letters
        new = [n for n in range(len(letters)) if n not in self.model.redriven]
        expected = [n for n in new if chosen.matches(letters[n])][:limit]
        before = self.model.queues[QUEUES].sent[:]
        self.model.redrive(expected)
        try:
            count = redrive(
                self.broker.node, self.producer, GROUP, chosen.subscription, limit=limit
            )
        except ShardUnavailableError:
            self.model.redrive_failed(expected)
        else:
            assert count == len(expected)
        self.model.observe()
        assert before == self.model.queues[QUEUES].sent[: len(before)]

    # What holds after each step

    @invariant()
    def check_offsets(self) -> None:
        type(self).steps += 1
        self.model.observe()
        for number in range(QUEUES + 1):
            self.model.check_committed(number, self.heard(number), may_go_back=self.restarted)
        self.restarted = False

    @invariant()
    def one_app_has_a_queue(self) -> None:
        if any(app.is_excused for app in self.apps):
            return
        held = [
            (feed.topic, queue_id)
            for app in self.apps
            for feed in app.feeds.values()
            for queue_id in feed.positions
        ]
        assert len(held) == len(set(held))

    @invariant()
    def counters_are_those_of_the_lists(self) -> None:
        """The lag of one queue each time, as counting costs more than most rules; all letters."""
        number = self.steps % (QUEUES + 1)
        place = (retry_topic(GROUP), 0) if number == QUEUES else (TOPIC, number)
        for group in self.broker.groups.all():
            if group.topic == place[0]:
                asked = replace(group, offsets={place[1]: group.offsets[place[1]]})
                assert lag_of(self.broker.node, asked)[place[1]].count == self.model.lag(number)
        for box in letter_boxes(self.broker.node):
            found = box.letters, box.redriven
            assert found == (len(self.model.letters), len(self.model.redriven - self.model.unheard))

    def heal(self) -> None:
        """All is well again: then everything comes to its end."""
        self.calm_down()
        for _ in range(2):
            self.pass_long(LADDER_S)
            rounds = 6 + sum(self.ends())  # each gets on by one
            while rounds and (rounds > sum(self.ends()) or not self.is_through()):
                rounds -= 1
                self.advance(1)
                for app in self.apps:
                    self.do(app.step())
                    self.succeed(app)
                    app.commit()
        self.advance(1)
        self.check_offsets()
        self.counters_are_those_of_the_lists()
        assert self.is_through()
        self.model.check_end()

    def ends(self) -> list[int]:
        """How many messages each queue has."""
        return [len(queue.sent) for queue in self.model.queues]

    def is_through(self) -> bool:
        """All messages of all queues are finished."""
        return [max(self.heard(number), 0) for number in range(QUEUES + 1)] == self.ends()


def _message(sent: Sent) -> Message:
    return Message(
        TOPIC,
        b"%d" % sent.name,
        sent.tag,
        [f"key-{sent.name}"],
        {"number": str(sent.number)},
    )
