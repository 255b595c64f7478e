"""Groups are moved to other offsets, also while their members live."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.nodes.apps import numbers, put
from support.nodes.local_node import RULES, LocalNode

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.base.message_time import TIME_MAX_MS
from rocketray.errors import ConfigError, OffsetOutOfRangeError, ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_administration import GroupAdministration
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.clock import system_clock_ms
from rocketray.services.admin.seeking import OffsetMove, carry_out, plan_clone, plan_moves

ALL = Subscription.tags("*")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        yield local


def take(member: GroupConsumer, count: int) -> list[bytes]:
    """Receive and commit."""
    found: list[bytes] = []
    for _ in range(300):
        for batch in member.poll(0.1):
            found += batch.bodies()
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        if len(found) >= count:
            break
    return found


def test_a_plan_says_what_would_change_and_changes_nothing(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(10))
    with node.consumer("g", "T", ALL) as member:
        take(member, 10)
    groups = node.groups.all()
    (back,) = plan_moves(node, groups, offset=4)
    assert (back.from_offset, back.to_offset, back.repeated, back.skipped) == (10, 4, 6, 0)
    (first,) = plan_moves(node, groups, to="earliest")
    assert (first.to_offset, first.repeated) == (0, 10)
    assert plan_moves(node, groups, to="latest")[0].to_offset == 10
    message = node.messages.at("T", 0, 0)
    assert message is not None
    assert plan_moves(node, groups, time_ms=message.store_timestamp_ms)[0].to_offset == 0
    assert plan_moves(node, groups, time_ms=2**60)[0].to_offset == 10
    assert node.groups.all()[0].offsets == {0: 10}
    with pytest.raises(OffsetOutOfRangeError, match="T/0: offset 11 is out of range"):
        plan_moves(node, groups, offset=11)
    with pytest.raises(ConfigError, match="topic 'T' has no queue 1; its queues are 0 to 0"):
        plan_moves(node, groups, offset=1, queue_id=1)


def test_a_group_that_has_no_offset_skips_nothing() -> None:
    move = OffsetMove("g", "T", 0, -1, 5)
    assert (move.skipped, move.repeated) == (0, 0)


def test_a_living_member_goes_on_behind_the_move(node: LocalNode) -> None:
    node.topics.ensure("T", 2)
    for queue_id in (0, 1):
        with node.producer() as producer:
            for number in range(5):
                producer.send("T", b"%d-%d" % (queue_id, number), queue_id=queue_id)
    revoked: list[frozenset[tuple[str, int]]] = []
    with node.consumer("g", "T", ALL) as member:
        member.on_revoke = revoked.append
        assert len(take(member, 10)) == 10
        moves = plan_moves(node, node.groups.all(), offset=3, queue_id=1)
        moving = threading.Thread(target=carry_out, args=(node.groups, moves, 30))
        moving.start()
        assert take(member, 2) == [b"1-3", b"1-4"]
        moving.join()
        assert revoked == [frozenset({("T", 1)})]
    assert node.groups.all()[0].offsets == {0: 5, 1: 5}


def test_a_member_that_does_not_give_up_is_told_of_and_moved_when_it_died() -> None:
    registry = GroupRegistry()
    now_ms = 0

    def request() -> AbstractContextManager[int]:
        return nullcontext(now_ms)

    administration = GroupAdministration(registry, request, request)
    beat = Heartbeat("g", "T", ALL, "one", "life", frozenset())
    registry.heartbeat(beat, 2, 0)

    moves = [OffsetMove("g", "T", 0, -1, 7)]
    with pytest.raises(StreamError, match=r"still hold queues \[0\] of topic 'T'"):
        carry_out(administration, moves, 0, sleep=lambda _: None)
    assert registry.offsets.get("g", "T", 0) == -1
    now_ms = SESSION_TIMEOUT_MS + 1
    carry_out(administration, moves, 1, sleep=lambda _: None)
    assert registry.offsets.get("g", "T", 0) == 7
    with pytest.raises(StreamError, match="does not read topic 'U'"):
        administration.move_offsets("g", "U", {0: 1})
    with pytest.raises(StreamError, match="offset -1 is out of range"):
        administration.move_offsets("g", "T", {0: -1})
    assert administration.moves_left("g", "T", "of another life") == set()


def beat(number: int, held: set[int], **commits: dict[int, int]) -> Heartbeat:
    return Heartbeat("g", "T", ALL, "one", "life", frozenset(held), number=number, **commits)  # type: ignore[arg-type]


@pytest.mark.proves("groups", "An order to move a group survives the coordinator")
def test_an_order_outlives_the_coordinator_until_it_is_carried_out_and_no_longer(
    tmp_path: Path,
) -> None:
    def start() -> ClusterState:
        return ClusterState(tmp_path, RULES, lambda: 0)

    state = start()
    state.topics.create("T", 2)
    assert state.heartbeat(beat(1, set())).granted == {0: -1, 1: -1}
    assert state.heartbeat(beat(2, {0, 1}, commits={0: 5, 1: 5})).granted == {0: 5, 1: 5}
    name = state.administration.move_offsets("g", "T", {0: 2})

    state = start()  # the one before saved nothing more
    assert state.administration.moves_left("g", "T", name) == {0}
    assert state.heartbeat(beat(3, {0, 1}, commits={0: 6})).granted.keys() == {1}

    state = start()
    assert state.heartbeat(beat(4, {1}, commits={0: 7})).granted[0] == 2
    assert state.administration.moves_left("g", "T", name) == set()

    state = start()
    assert state.heartbeat(beat(5, {0, 1}, commits={0: 4})).granted[0] == 4
    assert state.administration.moves_left("g", "T", name) == set()


def test_moves_that_cannot_be_read_say_what_to_do() -> None:
    with pytest.raises(StreamError, match="remove its moveTable"):
        GroupRegistry().load({"moveTable": {"T@g": {"0": "five"}}}, 0)


def test_a_command_waits_for_a_coordinator_that_starts_again() -> None:
    class Groups:
        away = 2

        def move_offsets(self, *_: object) -> str:
            return "order"

        def moves_left(self, *_: object) -> set[int]:
            self.away -= 1
            if self.away >= 0:
                raise ShardUnavailableError("the coordinator", "it starts again")
            return set()

    carry_out(Groups(), [OffsetMove("g", "T", 0, 1, 7)], 1, sleep=lambda _: None)  # type: ignore[arg-type]


def test_its_time_is_over_also_if_calls_take_most_of_it_and_all_orders_are_given() -> None:
    class Groups:
        ordered: ClassVar[list[str]] = []
        now_s = 0.0

        def move_offsets(self, _: str, topic: str, *__: object) -> str:
            self.ordered.append(topic)
            return topic

        def moves_left(self, *_: object) -> set[int]:
            self.now_s += 10.0
            return {0}

    groups: Any = Groups()
    moves = [OffsetMove("g", topic, 0, 1, 7) for topic in ("T", "U")]
    with pytest.raises(StreamError, match=r"still hold queues \[0\] of topic 'T'"):
        carry_out(groups, moves, 25, sleep=lambda _: None, clock_s=lambda: groups.now_s)
    assert (groups.now_s, groups.ordered) == (30.0, ["T", "U"])


def test_a_new_group_begins_at_a_time_as_far_as_that_is_there(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(3))
    until_ms = system_clock_ms() + 2
    while system_clock_ms() < until_ms:
        time.sleep(0.001)
    put(node, "T", numbers(2, first=3))
    with node.consumer("since", "T", ALL, start=until_ms) as member:
        assert take(member, 2) == numbers(2, first=3)
    with node.consumer("ever", "T", ALL, start=0) as member:
        assert take(member, 5) == numbers(5)
    with node.consumer("future", "T", ALL, start=TIME_MAX_MS) as member:
        put(node, "T", numbers(1, first=5))
        assert take(member, 1) == numbers(1, first=5)
    with node.consumer("since", "T", ALL, start=0) as member:
        assert take(member, 1) == numbers(1, first=5), "it has an offset, so it goes on there"


def test_a_clone_leaves_out_retries_and_queues_without_an_offset_and_refuses_broadcast(
    node: LocalNode,
) -> None:
    node.topics.ensure("T", 2)
    node.topics.ensure("B", 1)
    node.sessions.heartbeat(Heartbeat("g", "T", ALL, "one", "life", frozenset()))
    node.sessions.heartbeat(
        Heartbeat("g", "T", ALL, "one", "life", frozenset({0, 1}), commits={1: 0}, number=1)
    )
    assert plan_clone(node.groups.all(), "g", "h") == [OffsetMove("h", "T", 1, -1, 0)]
    with node.consumer("g", "B", ALL, client_id="one", broadcast=True):
        with pytest.raises(ConfigError, match="'B' in broadcast mode"):
            plan_clone(node.groups.all(), "g", "h")
        with pytest.raises(StreamError, match="broadcast mode"):
            node.groups.move_offsets("h", "B", {0: 0}, like="g")
        assert plan_clone(node.groups.all(), "g", "h", "T")
    with pytest.raises(OffsetOutOfRangeError):
        node.groups.move_offsets("h", "T", {0: 1}, like="g")
    assert "h" not in {each.group for each in node.groups.all()}, "nothing of it was kept"


def test_a_clone_moves_a_group_whose_member_lives(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(6))
    with node.consumer("g", "T", ALL) as source:
        assert len(take(source, 6)) == 6
    with node.consumer("h", "T", ALL) as member:
        assert len(take(member, 6)) == 6
        member.beat()
        node.groups.move_offsets("g", "T", {0: 4})
        moves = plan_clone(node.groups.all(), "g", "h")
        assert (moves[0].from_offset, moves[0].to_offset, moves[0].repeated) == (6, 4, 2)
        moving = threading.Thread(target=carry_out, args=(node.groups, moves, 30))
        moving.start()
        assert take(member, 2) == numbers(2, first=4)
        moving.join()
