"""What a program may ask of a member: offsets that the queue has, and polls while it is open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError, OffsetOutOfRangeError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer

Join = Callable[[], GroupConsumer]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", 1)
        put(local, "T", numbers(5))
        yield local


@pytest.fixture(params=["local", "remote"])
def join(request: pytest.FixtureRequest, node: LocalNode) -> Join:
    make: Any = node.consumer if request.param == "local" else node.remote_consumer
    return lambda: make("g", "T", Subscription.tags("*"))


def read_all(member: GroupConsumer) -> None:
    count = 0
    while count < 5:
        count += sum(len(batch) for batch in member.poll(1))


@pytest.mark.proves("groups", "An invalid commit is refused and changes nothing")
@pytest.mark.parametrize(
    ("place", "error", "says"),
    [
        (("T", 0, -1), OffsetOutOfRangeError, "T/0: offset -1 is out of range"),
        (("T", 0, 6), OffsetOutOfRangeError, "from 0 up to, not including, 6"),
        (("T", 0, 10**9), OffsetOutOfRangeError, "T/0: offset 1000000000"),
        (("T", 0, "3"), ConfigError, "'3'; give a whole number"),
        (("T", 0, 2.5), ConfigError, "2.5; give a whole number"),
        (("T", 0, None), ConfigError, "None; give a whole number"),
        (("T", 1, 0), ConfigError, "never read queue 1 of topic 'T' (it read: 0)"),
        (("T", -1, 0), ConfigError, "never read queue -1"),
        (("T", "0", 0), ConfigError, "never read queue '0'"),
        (("U", 0, 0), ConfigError, "reads topic 'T', so it cannot commit for 'U'"),
        ((None, 0, 0), ConfigError, "cannot commit for None"),
    ],
)
def test_a_commit_that_cannot_be_is_refused_and_moves_nothing(
    node: LocalNode, join: Join, place: tuple[Any, Any, Any], error: type[Exception], says: str
) -> None:
    with join() as member:
        read_all(member)
        member.commit("T", 0, 2)
        with pytest.raises(error) as raised:
            member.commit(*place)
        assert says in str(raised.value)
    assert node.groups.all()[0].offsets == {0: 2}


def test_a_commit_may_go_up_to_the_end_and_back(node: LocalNode, join: Join) -> None:
    with join() as member:
        read_all(member)
        member.commit("T", 0, 5)
        member.commit("T", 0, 1)
    assert node.groups.all()[0].offsets == {0: 1}


@pytest.mark.parametrize(
    ("targets", "error", "says"),
    [
        ({0: 6}, OffsetOutOfRangeError, "from 0 up to, not including, 6"),
        ({0: -1}, OffsetOutOfRangeError, "offset -1"),
        ({0: 1, 1: 0}, ConfigError, "has the queues 0 to 0, not 1"),
        ({-1: 0}, ConfigError, "has the queues 0 to 0, not -1"),
        ({0: "1"}, ConfigError, "give a whole number"),
    ],
)
def test_a_group_is_not_moved_where_no_offset_is(
    node: LocalNode, targets: dict[int, Any], error: type[StreamError], says: str
) -> None:
    with node.consumer("g", "T", Subscription.tags("*")) as member:
        member.commit("T", 0, 3)
    with pytest.raises(error, match=says):
        node.groups.move_offsets("g", "T", targets)
    assert node.groups.all()[0].offsets == {0: 3}


@pytest.mark.parametrize("timeout_s", ["x", -1, None, float("nan"), float("inf")])
def test_a_poll_without_a_time_to_wait_is_refused(join: Join, timeout_s: Any) -> None:
    with join() as member, pytest.raises(ConfigError, match=r"timeout_s is .*poll\(1\.0\)"):
        member.poll(timeout_s)


@pytest.mark.parametrize("count", [0, -1, "x", 2.5])
def test_a_poll_for_no_message_is_refused(join: Join, count: Any) -> None:
    with join() as member, pytest.raises(ConfigError, match="max_messages is"):
        member.poll(0, count)


def test_a_poll_of_a_closed_member_is_refused(join: Join) -> None:
    with join() as member:
        assert member.poll(1e9)
    with pytest.raises(StreamError, match="member of group 'g' on topic 'T' is closed"):
        member.poll(0)


def test_a_poll_that_waits_ends_when_the_member_is_closed(join: Join) -> None:
    member = join()
    read_all(member)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(member.poll, 600)
        while not waiting.running():
            time.sleep(0.001)
        member.close()
        assert waiting.result(patience(30)) == []
