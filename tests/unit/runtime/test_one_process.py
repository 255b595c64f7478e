"""What a fork inherits raises there, and the parent loses nothing by anything the fork does."""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.harness.forking import begin_in_fork, in_fork
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

import rocketray as rr
from rocketray.errors import ConfigError, ForkedError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.one_process import OfOneProcess
from rocketray.testing import Broker

pytestmark = pytest.mark.proves(
    "durability",
    "A fork writes nothing over messages of its parent, ends by itself, and leaves ring, "
    "group and node alone; what it inherits raises, and ids differ between all processes",
)

ALL = Subscription.tags("*")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 1)
        yield node


def raised(use: Callable[[], object]) -> str:
    """Return what *use* raises, in words."""
    with pytest.raises(ForkedError) as caught:
        use()
    return str(caught.value)


def uses(producer: NodeProducer, future: Any, transaction: Any) -> list[Callable[[], object]]:
    return [
        lambda: producer.send("T", b"child"),
        lambda: producer.send_async("T", b"child"),
        lambda: producer.send_many("T", bodies=[b"child"]),
        lambda: producer.begin,
        lambda: producer.flush,
        lambda: producer.one_way_lost,
        future.result,
        future.done,
        partial(future.add_done_callback, print),
        transaction.commit,
    ]


def test_a_fork_and_its_parent_send_at_once_and_the_parent_loses_nothing(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send("T", b"before")
        bound = producer.send

        def child() -> int:
            sends: list[Callable[[], object]] = [
                partial(bound, "T", b"child"),
                lambda: producer.send("T", b"child"),
            ]
            return len([raised(send) for _ in range(50) for send in sends])

        forks = [begin_in_fork(child) for _ in range(3)]
        sent = [producer.send("T", b"parent %d" % number) for number in range(200)]
        assert [wait() for wait in forks] == [100, 100, 100]
        stored = {int(message.queue_offset): message for message in node.stored("T")}
        assert len(stored) == 201
        for number, result in enumerate(sent):
            message = stored[result.queue_offset]
            assert (message.body, message.unique_key) == (b"parent %d" % number, result.message_id)


def test_each_use_of_an_inherited_producer_raises_and_names_both_processes(
    node: LocalNode,
) -> None:
    producer = NodeProducer(node, group="g", check=lambda _: "unknown")
    producer.send("T", b"before")
    future, transaction = producer.send_async("T", b"before, too"), producer.begin()
    producer.send("T", b"half", transaction=transaction)
    link = producer.links.opened()[0]
    with link.lock:  # a thread of the parent holds it
        waiting = producer._batcher

        def child() -> tuple[int, list[str]]:
            found = [raised(use) for use in uses(producer, future, transaction)]
            found.append(raised(lambda: waiting.flush))
            producer.close()
            return os.getpid(), found

        pid, found = in_fork(child)
    assert {text.partition(":")[0] for text in found} == {
        f"this producer was made in process {os.getpid()}, and this is process {pid}, a fork of it"
    }
    producer.close()


def test_the_end_of_a_fork_leaves_the_group_and_the_ring_of_the_parent_alone(
    node: LocalNode,
) -> None:
    with node.producer() as producer, node.consumer("g", "T", ALL) as member:
        producer.send("T", b"1")
        files = sorted(path for path in node.data.rglob("*") if not path.is_dir())

        def child() -> list[str]:
            found = [
                raised(lambda: member.poll(0.0)),
                raised(lambda: member.assignment),
                raised(lambda: member.commit("T", 0, 1)),
                raised(lambda: member.wake),
            ]
            with member, producer:
                pass
            gc.collect()
            return found

        assert all("this consumer was made in process" in text for text in in_fork(child))
        assert sorted(path for path in node.data.rglob("*") if not path.is_dir()) == files
        producer.send("T", b"2")
        taken: list[bytes] = []

        def poll() -> bool:
            for batch in member.poll(0.1):
                taken.extend(batch.bodies())
            return len(taken) == 2

        wait_until(poll)
        assert taken == [b"1", b"2"]
        assert len(node.groups.all()) == 1


def test_a_fork_in_a_block_ends_as_its_parent_goes_on(node: LocalNode) -> None:
    child = -1
    try:
        with node.producer() as producer:
            producer.send("T", b"before")
            child = os.fork()
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                producer.send("T", b"after")
        code = 7
    except BaseException:
        code = 1
        if child:
            raise
    finally:
        if not child:
            os._exit(code)
    assert [message.body for message in node.stored("T")] == [b"before", b"after"]


def test_an_async_producer_raises_in_a_fork_once_it_is_opened(node: LocalNode) -> None:
    made: list[int] = []

    def make() -> NodeProducer:
        made.append(os.getpid())
        return NodeProducer(node)

    producer = NodeAsyncProducer(make)

    def open_there() -> list[int]:
        asyncio.run(producer.open())
        return made

    [opened_in] = in_fork(open_there)
    assert opened_in != os.getpid()

    async def use() -> None:
        await producer.send("T", b"child")

    asyncio.run(producer.open())
    asyncio.run(producer.flush())

    def child() -> str:
        said = raised(lambda: asyncio.run(use()))
        asyncio.run(producer.close())
        return said

    assert "this producer was made" in in_fork(child)
    asyncio.run(producer.close())


def keys_of_new_producer(node: LocalNode, count: int) -> list[str]:
    ids = NodeProducer(node)._ids
    return [ids.next_id() for _ in range(count)]


def test_ids_of_a_fork_are_others_than_those_of_its_parent(node: LocalNode) -> None:
    with node.producer() as producer:
        child = in_fork(partial(keys_of_new_producer, node, 100))
        other = in_fork(partial(keys_of_new_producer, node, 100))
        parent = [producer._ids.next_id() for _ in range(100)]
    assert len({*child, *other, *parent}) == 300


def test_an_app_that_is_imported_before_a_fork_is_another_instance_there() -> None:
    app = rr.App("shop", connection=None)
    app.Table("seen", default=int)
    here = app.together
    assert here is not None
    assert here == app.together
    assert in_fork(lambda: app.together) != here


def test_an_app_that_has_sent_raises_in_a_fork() -> None:
    broker = Broker()
    app = rr.App("shop", connection=broker)
    topic = app.topic("Out", queues=1)

    async def send() -> None:
        await (await topic.send(value="parent"))

    async def both() -> str:
        await send()
        outbox = await app._outboxes.get(None)
        return in_fork(lambda: raised(lambda: outbox.put))

    assert "this app was made in process" in asyncio.run(both())
    assert len(broker.stored("Out")) == 1
    broker.close()


def test_a_broker_of_the_testing_kit_raises_in_a_fork_and_is_not_removed_there() -> None:
    with Broker() as broker:
        broker.topics.ensure("T", 1)
        producer = broker.producer()
        producer.send("T", b"1")

        def child() -> list[str]:
            said = [raised(lambda: broker.topics), raised(lambda: producer.send("T", b"2"))]
            broker.close()
            return said

        assert all("was made in process" in text for text in in_fork(child))
        assert broker.data.is_dir()
        producer.send("T", b"3")
        assert [each.body for each in broker.stored("T")] == [b"1", b"3"]


def test_the_fork_of_a_fork_is_named_itself(node: LocalNode) -> None:
    with node.producer() as producer:

        def grandchild() -> tuple[int, str]:
            return os.getpid(), raised(lambda: producer.flush)

        pid, said = in_fork(lambda: in_fork(grandchild))
        assert f"was made in process {os.getpid()}, and this is process {pid}" in said


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_of_one_process_is_not_copied(node: LocalNode, copied: Any) -> None:
    with node.producer() as producer, node.consumer("g", "T", ALL) as member:
        future = producer.send_async("T", b"1")
        given = [producer, member, NodeAsyncProducer(node.producer)]
        for each in given if copied is copy.copy else [*given, future]:
            with pytest.raises(ConfigError, match="make one in each process that needs it"):
                copied(each)


# Programs with worker processes

MASTER: dict[str, Any] = {}


def send_inherited(number: int) -> str:
    try:
        MASTER["producer"].send("T", b"worker %d" % number)
    except ForkedError as error:
        return str(error)
    return "sent"


def make_own() -> None:
    MASTER["own"] = MASTER["make"]()


def send_own(number: int) -> tuple[str, int]:
    sent = MASTER["own"].send("T", b"worker %d" % number)
    return sent.message_id, sent.queue_offset


@pytest.fixture
def master(node: LocalNode) -> Iterator[NodeProducer]:
    """A producer that a master made at import, before its workers."""
    with node.producer() as producer:
        producer.send("T", b"before")
        MASTER.update(producer=producer, make=node.producer)
        yield producer
    MASTER.clear()


def check(node: LocalNode, sent: list[tuple[str, int]]) -> None:
    stored = {int(message.queue_offset): message.unique_key for message in node.stored("T")}
    assert len({key for key, _ in sent}) == len(sent)
    for key, offset in sent:
        assert stored[offset] == key


def test_a_pool_of_multiprocessing(node: LocalNode, master: NodeProducer) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        working = pool.map_async(send_inherited, range(50))
        own = [master.send("T", b"parent") for _ in range(100)]
        assert all("a fork of it" in said for said in working.get())
        pool.close()
        pool.join()
    check(node, [(each.message_id, each.queue_offset) for each in own])
    assert len(node.stored("T")) == 101


def test_a_pool_of_futures_whose_processes_are_forked(
    node: LocalNode, master: NodeProducer
) -> None:
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=fork) as pool:
        assert all("a fork of it" in said for said in pool.map(send_inherited, range(20)))
        with pytest.raises(ConfigError, match="a producer belongs to one process"):
            pool.submit(master.send, "T", b"given").result()
    assert len(node.stored("T")) == 1


def test_a_pool_of_futures_whose_processes_are_spawned(
    node: LocalNode, master: NodeProducer
) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        with pytest.raises(ConfigError, match="initializer of a ProcessPoolExecutor"):
            pool.submit(master.send, "T", b"given").result()
        assert pool.submit(abs, -1).result() == 1  # the pool is not broken
    assert len(node.stored("T")) == 1


def serve(listener: socket.socket, answers: Callable[[int], object]) -> None:
    """Answer each connection, as a worker of a server that forks its workers."""
    number = 0
    while True:
        link, _ = listener.accept()
        with link:
            if link.recv(1) != b"?":
                return
            number += 1
            link.sendall(str(answers(number)).encode())


def asked(place: Any, request: bytes = b"?") -> str:
    with socket.create_connection(place) as link:
        link.sendall(request)
        return link.makefile().read()


def test_a_server_that_loads_the_program_before_it_forks_its_workers(
    node: LocalNode, master: NodeProducer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        workers = [
            multiprocessing.get_context("fork").Process(
                target=serve, args=(listener, send_inherited), daemon=True
            )
            for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        own = []
        for _ in range(20):
            assert "a fork of it: make one in each process" in asked(listener.getsockname())
            own.append(master.send("T", b"master"))
        for _ in workers:
            asked(listener.getsockname(), b".")
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
    check(node, [(each.message_id, each.queue_offset) for each in own])


def test_what_does_not_fork_pays_nothing(node: LocalNode) -> None:
    with node.producer() as producer:
        assert type(producer) is NodeProducer
        assert "__getattribute__" not in vars(OfOneProcess)
        in_fork(os.getpid)
        assert type(producer) is NodeProducer
        assert isinstance(producer, OfOneProcess)
        assert issubclass(GroupConsumer, OfOneProcess)
