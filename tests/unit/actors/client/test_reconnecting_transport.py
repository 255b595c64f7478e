"""A member over a node's socket: what it gets, and that it continues behind a pause of the node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray.actors.client import reconnecting_transport
from rocketray.actors.client.connected_client import LocalClient
from rocketray.actors.client.reconnecting_transport import ReconnectingTransport
from rocketray.errors import (
    ConfigError,
    ShardUnavailableError,
    SubscriptionConflictError,
    TopicNotFoundError,
)
from rocketray.filters.subscription import Subscription
from rocketray.hosting.apps_api import APPS, AppsApi
from rocketray.hosting.host_status import Host
from rocketray.messaging.consumers import member as member_module
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.calls.endpoint import client_of

pytestmark = pytest.mark.proves(
    "durability",
    "A member over the node's socket gets and commits what one of a direct client does, "
    "and continues when the node's process answers again; hosts of apps that are asked "
    "for over it are those that a process in Ray finds",
)

SQL = Subscription.sql("amount > 2")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.02)
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", 2)
        yield local


def client_on(node: LocalNode) -> LocalClient:
    transport = ReconnectingTransport.open(node.data)
    assert transport is not None
    return LocalClient(transport)


def polled(member: GroupConsumer, count: int) -> list[bytes]:
    """Poll until there are *count* messages, and commit them; return their bodies, sorted."""
    found: list[bytes] = []

    def has_all() -> bool:
        for batch in member.poll(0.1):
            found.extend(message.body for message in batch.messages())
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        return len(found) >= count

    wait_until(has_all)
    return sorted(found)


@pytest.mark.parametrize("subscription", [Subscription.tags("*"), SQL])
def test_a_member_gets_and_commits_what_one_of_a_direct_client_does(
    node: LocalNode, subscription: Subscription
) -> None:
    bodies = numbers(6)
    for number, body in enumerate(bodies):
        put(node, "T", [body], properties={"amount": str(number)})
    expected = bodies if subscription is not SQL else bodies[3:]
    with serving(node), client_on(node) as client:
        for found, group in ((node, "direct"), (client, "socket")):
            with found.consumer(group, "T", subscription) as member:
                assert polled(member, len(expected)) == expected
                assert member.assignment() == {("T", 0), ("T", 1)}
        direct, over_socket = sorted(node.groups.all(), key=lambda each: each.group)
        assert direct.offsets == over_socket.offsets
        assert over_socket.members == {}, "it has left"
        with pytest.raises(TopicNotFoundError):
            client.consumer("g", "Nope", subscription)
        with pytest.raises(ConfigError):
            client.consumer("", "T", subscription)


def test_errors_of_the_coordinator_reach_the_member(node: LocalNode) -> None:
    with (
        serving(node),
        client_on(node) as client,
        client.consumer("g", "T", Subscription.tags("a")),
        pytest.raises(SubscriptionConflictError),
    ):
        client.consumer("g", "T", Subscription.tags("b"))


def test_it_continues_when_the_node_s_process_answers_again(node: LocalNode) -> None:
    put(node, "T", numbers(2))
    with ExitStack() as service:
        service.enter_context(serving(node))
        client = client_on(node)
        with client, client.consumer("g", "T", Subscription.tags("*")) as member:
            assert polled(member, 2) == numbers(2)
            service.close()
            with pytest.raises(ShardUnavailableError, match="rocketray start --data"):
                client.topics.all()
            put(node, "T", numbers(2, first=2))
            service.enter_context(serving(node))
            assert polled(member, 2) == numbers(2, first=2)
        [group] = node.groups.all()
    assert sum(group.offsets.values()) == 4, "the last commits were sent"


class Apps:
    """A service that answers when it may."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def hosts(self, app: str | None) -> list[Host]:
        assert app is None
        self.asked.set()
        assert self.may_answer.wait(patience(30))
        return []


def test_a_call_that_waits_does_not_hold_up_another(node: LocalNode) -> None:
    apps, found = Apps(), []
    with serving(node, {"AppsApi": lambda: (AppsApi, apps)}), client_on(node) as client:
        slow = client_of(client.transport, APPS)
        thread = threading.Thread(target=lambda: found.append(slow.hosts(None)))
        thread.start()
        assert apps.asked.wait(patience(30))
        assert "T" in client.topics.all()
        assert found == []
        apps.may_answer.set()
        thread.join(patience(30))
    assert found == [[]]


def test_a_process_that_is_silent_is_unavailable_and_its_late_answer_is_not_read(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting_transport, "_SILENCE_MAX_S", 0.5)
    apps = Apps()
    with serving(node, {"AppsApi": lambda: (AppsApi, apps)}), client_on(node) as client:
        with pytest.raises(ShardUnavailableError, match="does not answer"):
            client_of(client.transport, APPS).hosts(None)
        apps.may_answer.set()
        monkeypatch.undo()
        assert "T" in client.topics.all()
