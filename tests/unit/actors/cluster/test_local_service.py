"""A node's own socket: its answers are those of direct calls, and strangers get none."""

from __future__ import annotations

import errno
import inspect
import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.no_threads import no_threads
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray import __version__
from rocketray.actors.client import local_transport
from rocketray.actors.client.connected_client import LocalClient
from rocketray.actors.client.local_transport import LocalTransport, open_local
from rocketray.actors.cluster import local_service
from rocketray.actors.cluster.local_service import LocalService
from rocketray.broker.fetching.range_api import DiskQueues, RangeApi
from rocketray.broker.fetching.read_plan import Bounds, DiskPlace, FetchService
from rocketray.broker.retries.retry_records import dead_lettered
from rocketray.errors import ActorError, ConfigError, NodeNotRunningError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.api.node_client import NodeClient, lag_of
from rocketray.runtime.calls import local_frames
from rocketray.runtime.calls.call_text import read_text, write_text
from rocketray.runtime.calls.value_forms import call_form
from rocketray.runtime.files.paths import local_socket
from rocketray.services.admin.dead_letter_calls import letters_by_calls, redrive_by_calls
from rocketray.services.admin.dead_letters import letter_boxes, letters
from rocketray.store.queues.queue_gaps import QueueGaps
from rocketray.store.retention import RetentionPolicy

pytestmark = pytest.mark.proves(
    "durability",
    "Commands ask the node of their machine over its socket: each answer is that of a "
    "direct call, errors are the same, and frames of another form, other users, another "
    "release and too large answers are refused",
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as node:
        yield node


@pytest.fixture
def service(node: LocalNode) -> Iterator[LocalService]:
    with serving(node) as service:
        yield service


@pytest.fixture
def client(node: LocalNode, service: LocalService) -> Iterator[LocalClient]:
    del service
    link = open_local(node.data)
    assert link is not None
    with LocalClient(link) as client:
        yield client


def answers(node: NodeClient) -> list[Any]:
    """What commands ask."""
    [group] = node.groups.all()
    messages = node.messages.query("Trade", "k1")
    return [
        node.topics.all(),
        node.topics.get("Trade"),
        node.shard_statistics("Trade"),
        group,
        lag_of(node, group),
        node.groups.journal("g"),
        node.groups.change_progress("g", "Trade"),
        node.filters.statistics(),
        messages,
        node.messages.view(messages[0].offset_message_id),
        node.messages.at("Trade", 0, 99),
        node.messages.offset_at_time("Trade", 0, 0),
        node.messages.query_by_time("Trade", 0, 2**60),
        node.transactions.overview(9),
        node.delays.waiting(""),
        node.files("a test"),
    ]


def test_each_answer_is_that_of_a_direct_call(node: LocalNode, client: LocalClient) -> None:
    client.topics.ensure(
        "Trade", 2, retention=RetentionPolicy(60_000), queues_per_process="shared", ack="disk"
    )
    body = bytes(range(256))
    with node.producer() as producer:
        for _ in range(3):
            producer.send("Trade", body, tags="a", keys=["k1"], properties={"x": "ü"})
    with node.consumer("g", "Trade", Subscription("SQL92", "x = 'ü'")) as member:
        member.poll(1.0)
    # Those of the producer are let go of, and those of the member.
    wait_until(lambda: not any(shard.rings for shard in node.shard_statistics("Trade")))
    wait_until(lambda: not node.filters.statistics().streams)
    assert answers(client) == answers(node)
    assert client.explain("k1", "g") == node.explain("k1", "g")
    assert client.doubts(["Trade"], Subscription("TAG", "b")) == ["Trade: tags 'b'"]
    plan = client.groups.prepare_change("g", "Trade", Subscription("TAG", "a"))
    assert node.groups.all()[0].plan == plan
    client.groups.abort_change("g", "Trade")
    assert client.groups.moves_left("g", "Trade", "none") == set()


def test_a_command_is_served_after_one_that_no_thread_could_be_started_for(
    node: LocalNode, client: LocalClient, caplog: pytest.LogCaptureFixture
) -> None:
    with no_threads():
        assert open_local(node.data) is None, "it joins Ray"
    assert "cannot be served" in caplog.text
    assert client.topics.all() == node.topics.all()
    again = open_local(node.data)
    assert again is not None
    again.close()


def test_dead_letters_are_read_and_redriven_there(node: LocalNode, client: LocalClient) -> None:
    for topic in ("Trade", "%DLQ%g"):
        node.topics.ensure(topic, 1, queues_per_process="shared")
    with node.producer() as producer:
        for number in range(3):
            sent = producer.send("Trade", bytes([number]), tags="a")
            stored = node.messages.view(sent.offset_message_id)
            assert stored is not None
            letter = dead_lettered(stored, "g", "%DLQ%g", 16, reason="ValueError: no")
            producer.forward("%DLQ%g", 0, [letter.message])
    everything = Subscription("TAG", "*")
    assert client.letters.boxes() == letter_boxes(node)
    found = list(letters_by_calls(client.letters, "g", everything))
    assert found == list(letters(node, "g", everything))
    assert [letter.body for letter, _ in found] == [b"\0", b"\1", b"\2"]
    assert redrive_by_calls(client.letters, "g", everything, None, 2) == 2
    assert redrive_by_calls(client.letters, "g", everything, None, None) == 1


def test_a_producer_stores_and_delays_messages(node: LocalNode, client: LocalClient) -> None:
    node.topics.ensure("T", 2)
    with client.producer() as producer:
        sent = producer.send("T", b"now", keys="k", queue_id=1, ack="disk")
        delayed = producer.send("T", b"later", delay=3600)
        with pytest.raises(TopicNotFoundError):
            producer.send("Nope", b"")
    [stored] = node.stored("T")
    assert (stored.body, stored.keys, stored.queue_id) == (b"now", ["k"], 1)
    assert stored.offset_message_id == sent.offset_message_id
    assert delayed.recall_handle is not None
    assert client.delays.recall(delayed.recall_handle)


def test_each_method_of_each_interface_can_be_called() -> None:
    """A type without a form would be found at the first call only."""
    interfaces = local_service._INTERFACES.values()
    methods = [
        method
        for interface in interfaces
        for name, method in vars(interface).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]
    assert len(methods) > 50
    for method in methods:
        call_form(method)


def test_the_bounds_of_queues_come_as_they_were() -> None:
    gaps, service = QueueGaps([(3, 5), (1, 2)]), FetchService("127.0.0.1", 5, "token")
    found = DiskQueues(DiskPlace(Path("/d"), "disk", "m", service), {("T", 1): Bounds(1, 9, gaps)})
    form = call_form(RangeApi.look).result
    assert form.read(read_text(write_text(form.write(found)))) == found


@pytest.mark.parametrize("size", [10, 70_000, 900_000])
def test_a_batch_that_goes_by_a_call_is_stored(
    node: LocalNode, client: LocalClient, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a time without an answer over the ring; larger batches go in pieces."""
    monkeypatch.setattr(LocalTransport, "is_local", lambda *_: False)
    node.topics.ensure("T", 1)
    with client.producer() as producer:
        sent = producer.send("T", os.urandom(size))
        assert sent.queue_offset == 0
        assert (
            producer.send_many("T", [Message("T", b"a"), Message("T", b"b")])[1].queue_offset == 2
        )
    assert [len(one.body) for one in node.stored("T")] == [size, 1, 1]


def test_errors_come_as_they_were_raised(client: LocalClient) -> None:
    with pytest.raises(TopicNotFoundError, match="'Trde'"):
        client.topics.get("Trde")
    with pytest.raises(ConfigError):
        client.topics.create("Trade", -1)
    assert client.topics.all() == {}, "and the connection goes on"


def test_a_call_that_no_command_makes_is_refused(service: LocalService, node: LocalNode) -> None:
    del service
    with connected(node.data) as link:
        for request in (
            {},
            {"interface": "Path", "method": "unlink", "to": [["", []]], "given": [[], {}]},
            {
                "interface": "TopicsApi",
                "method": "_secret",
                "to": [["coordinator", []]],
                "given": [],
            },
            {"interface": "TopicsApi", "method": "get", "to": [], "given": [["Trade"], {}]},
            {
                "interface": "TopicsApi",
                "method": "get",
                "to": [["coordinator", []]],
                "given": [[1], {}],
            },
            {
                "interface": "DisksApi",
                "method": "join",
                "to": [["coordinator", []]],
                "given": [[], {}],
            },
        ):
            local_frames.write_frame(link, request, 1 << 20)
            answer = local_frames.read_frame(link, 1 << 20)
            assert answer is not None
            assert answer["error"][0] == "ConfigError", request


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0\0",
        struct.pack(">I", 0),
        struct.pack(">I", 1 << 31) + b"x",
        struct.pack(">I", 4) + b"nope",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 100_000) + b"[" * 100_000,
        struct.pack(">I", 9) + b"{}",
    ],
)
def test_a_frame_of_another_form_ends_the_connection(
    service: LocalService, node: LocalNode, sent: bytes
) -> None:
    del service
    with connected(node.data) as link:
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # where it left some unread
            assert link.recv(1) == b""
    assert is_answered(node.data), "others are answered"


def test_another_release_is_named(
    service: LocalService, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    del service
    monkeypatch.setattr(local_transport, "__version__", "9.8.7")
    with pytest.raises(
        ActorError, match=r"is of release '0\.1\.0', and this process has '9\.8\.7'"
    ):
        open_local(node.data)


def test_another_user_gets_no_answer(
    service: LocalService, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    del service
    monkeypatch.setattr(local_service, "peer_user", lambda _: os.getuid() + 1)
    assert not is_answered(node.data)
    monkeypatch.undo()
    monkeypatch.setattr(local_transport, "peer_user", lambda _: os.getuid() + 1)
    assert not is_answered(node.data)


def test_a_socket_that_another_user_may_have_made_is_not_used(
    service: LocalService, node: LocalNode
) -> None:
    del service
    path = local_socket(node.data)
    assert path.stat().st_mode & 0o777 == 0o600
    path.parent.chmod(0o755)
    assert not is_answered(node.data)
    path.parent.chmod(0o700)
    assert is_answered(node.data)
    path.unlink()
    path.touch()
    assert not is_answered(node.data)


def test_without_a_service_the_caller_joins_ray(node: LocalNode, service: LocalService) -> None:
    client = open_local(node.data)
    assert client is not None
    service.close()
    assert not is_answered(node.data), "a socket is left, and no process listens"
    with pytest.raises(NodeNotRunningError, match="has ended"), LocalClient(client) as left:
        left.topics.all()


def test_an_answer_that_is_too_large_is_refused_and_the_next_one_is_not(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.topics.ensure("Trade", 8)
    monkeypatch.setattr(local_service, "REPLY_MAX_BYTES", 300)
    with pytest.raises(ConfigError, match="ask for less"):
        client.topics.all()
    assert client.groups.all() == []


def is_answered(data: Path) -> bool:
    found = open_local(data)
    if found is not None:
        found.close()
    return found is not None


def connected(data: Path) -> socket.socket:
    """Return a connection after both hellos."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(str(local_socket(data)))
    local_frames.write_frame(link, {"rocketray": __version__}, 1 << 20)
    assert json.dumps(local_frames.read_frame(link, 1 << 20))
    return link


def test_a_connection_that_cannot_be_accepted_ends_no_later_one(
    node: LocalNode,
    service: LocalService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(local_service, "_RETRY_S", 0.01)
    accept, errors = service._socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def fail_once() -> object:
        if errors:
            raise errors.pop()
        return accept()

    there = SimpleNamespace(
        accept=fail_once, shutdown=service._socket.shutdown, close=service._socket.close
    )
    monkeypatch.setattr(service, "_socket", there)  # from the next connection on
    for _ in range(2):
        link = open_local(node.data)
        assert link is not None
        link.close()
    assert not errors
    assert "cannot be served, and has to join Ray: [Errno 24]" in caplog.text
    service.close()
