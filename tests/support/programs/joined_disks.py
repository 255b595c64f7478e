"""A driver that uses a cluster of two disks, on two machines apart, and prints what it found.

Its arguments are a phase (a function here), the Ray's address and the name of the cluster. Without
any, it serves phases (fork_server.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import faust
import ray
from support.harness.fork_server import serve
from support.harness.patience import extended, patience, wait_until, wait_until_answered
from support.programs.joined_apps import hosts, parcels, take
from support.programs.traffic import Traffic, gap

import rocketray as rr
from rocketray.base.names import QueuesPerProcess
from rocketray.base.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disks_api import MovedQueue
from rocketray.client import Client
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.kernels import warm
from rocketray.messaging.api.node_client import lag_of
from rocketray.messaging.producers.batch import SendResult
from rocketray.queries.spark.session import spark_session
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME
from rocketray.runtime.ray_process.ray_runtime import namespace_of

TOPIC, GROUP = "Trade", "audit"
_WAIT_S = 60.0
_EACH = 50


def main(phase: str, address: str, cluster: str) -> None:
    """Run one phase, and print one object."""
    with Client(cluster=cluster, ray_address=address) as client:
        found = globals()[phase](client)
    sys.stdout.write(json.dumps(found) + "\n")


def fill(client: Client) -> dict[str, Any]:
    """Create the topics, and send to all queues: with keys, tags and properties."""
    client.topics.create(TOPIC, 4)
    client.topics.create("Small", 2)
    with client.producer(ack="disk", timeout_s=extended(10)) as producer:
        for queue_id in range(4):
            for number in range(_EACH):
                body = b"%d-%d" % (queue_id, number)
                tags = "pay" if number % 2 else "order"
                properties = {"amount": str(number)}
                producer.send(
                    TOPIC, body, keys="filled", tags=tags, properties=properties, queue_id=queue_id
                )
        for number in range(10):
            producer.send("Small", b"%d" % number)
    return {
        "places": {name: topic.disks for name, topic in client.topics.all().items()},
        "by key": len(client.messages.query(TOPIC, "filled", max_count=1000)),
    }


def consume(client: Client) -> dict[str, Any]:
    """Read all with a tag, and with SQL92, and say what is left."""
    return {
        "paid": len(take(client, GROUP, Subscription.tags("pay"), 4 * _EACH // 2)),
        "dear": len(take(client, "dear", Subscription.sql("amount >= 40"), 40)),
        "small": len(take(client, "small", Subscription.tags("*"), 10, "Small")),
        "lag": {
            each.group: sum(lag.count for lag in lag_of(client, each).values())
            for each in client.groups.all()
            if each.topic == TOPIC
        },
    }


def state(client: Client) -> dict[str, Any]:
    """Return what the cluster has: the end and the messages of each queue, and the groups' offsets."""
    offsets = _offsets(client)
    everything = take(client, "state", Subscription.tags("*"), sum(offsets))
    return {
        "offsets": offsets,
        "messages": sorted(everything),
        "groups": {
            each.group: {str(queue): offset for queue, offset in sorted(each.offsets.items())}
            for each in client.groups.all()
            if each.topic == TOPIC and each.group != "state"
        },
        "problems": client.problems(),
    }


def later(client: Client) -> dict[str, Any]:
    """Send to a queue of each disk what is delivered later; say where it waited, and what arrived."""
    topic = client.topics.create("Later", 2)
    with client.producer(
        ack="disk", timeout_s=extended(10), group="later", check=lambda _: "unknown"
    ) as producer:
        waited = []
        for queue_id in range(2):
            options: Any = {"keys": "later", "queue_id": queue_id}
            producer_of = partial(producer.send, topic.name, b"%d" % queue_id, **options)
            level, timed = producer_of(delay_level=1), producer_of(delay=1)
            with producer.begin() as transaction:
                half: Any = producer_of(transaction=transaction)
            places = (SCHEDULE_TOPIC, level), (TIMER_TOPIC, timed), (HALF_TOPIC, half)
            waited.append([_is_on(client, topic.disk_of(queue_id), *place) for place in places])
        open_one = producer.begin()
        producer.send(topic.name, b"open", transaction=open_one, queue_id=1)
        wait_until(lambda: client.transactions.overview(10).undecided == 1)
        open_one.rollback()
    wait_until(lambda: len(client.messages.query(topic.name, "later")) == 6)
    return {
        "beside": waited,
        "arrived": sorted(one.queue_id for one in client.messages.query(topic.name, "later")),
    }


def _is_on(client: Client, disk: str, topic: str, result: SendResult) -> bool:
    return client.topics.get(topic).disk_of(result.queue_id) == disk


def kill(client: Client) -> dict[str, Any]:
    """Kill every actor of the joined disk; say which live there again, and what they have."""
    before = _of_joined()
    nodes = {each["NodeID"] for each in ray.nodes() if each["Alive"]}
    for pid, _ in before.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: all(_of_joined().get(name, (pid,))[0] != pid for name, (pid, _) in before.items()),
        lambda: (before, _of_joined()),
    )
    after = _of_joined()
    return {
        "same machine": {name: node == before[name][1] for name, (_, node) in after.items()},
        "machines": len(nodes),
        "offsets": _offsets(client),
    }


def away(client: Client) -> dict[str, Any]:
    """Use the cluster while the second machine is away."""
    here = [queue for queue, disk in enumerate(client.topics.get(TOPIC).disks) if not disk]
    wait_until(lambda: any("does not answer" in line for line in client.problems()))
    with client.producer(ack="disk", timeout_s=patience(_WAIT_S)) as producer:
        for queue_id in here:
            producer.send(TOPIC, b"while away", keys="away", tags="pay", queue_id=queue_id)
        anywhere = [producer.send(TOPIC, b"anywhere", tags="order").queue_id for _ in range(6)]
        try:
            producer.send(TOPIC, b"there", queue_id=min({*range(4)} - {*here}), timeout_s=10)
            refused = ""
        except ShardUnavailableError as error:
            refused = str(error)
        waiting = [
            producer.send("Later", b"away", keys="away", queue_id=queue_id, delay_level=1)
            for queue_id in range(2)
        ]
    taken = take(client, GROUP, Subscription.tags("pay"), len(here))
    created = client.topics.create("Meanwhile", 2).disks
    return {
        "problems": client.problems(),
        "waiting": [_is_on(client, "", SCHEDULE_TOPIC, result) for result in waiting],
        "unknown": client.transactions.overview(1).unknown,
        "sent": len(here),
        "anywhere": {*anywhere} <= {*here},
        "refused": refused,
        "taken": len(taken),
        "created": created,
        "hosts": hosts(client, 3),
    }


def without_the_first(client: Client) -> dict[str, Any]:
    """Use the cluster while the machine of the first disk is away, and the coordinator elsewhere."""
    topic = client.topics.create("Meanwhile", 2)
    with client.producer(ack="disk", timeout_s=patience(_WAIT_S)) as producer:
        for number in range(10):
            producer.send(topic.name, b"%d" % number)
    taken = len(take(client, "new", Subscription.tags("*"), 10, topic.name))
    with client.producer(
        ack="disk", timeout_s=extended(10), group="alone", check=lambda _: "unknown"
    ) as producer:
        producer.send(topic.name, b"delayed", keys="later", delay_level=1)
        with producer.begin() as transaction:
            producer.send(topic.name, b"committed", keys="later", transaction=transaction)
    wait_until(lambda: len(client.messages.query(topic.name, "later")) == 2)
    return {
        "taken": taken,
        "redelivered": _redelivered(client, topic.name),
        "unknown": client.transactions.overview(1).unknown,
        "disks": len(topic.by_disk()),
        "problems": client.problems(),
    }


def _redelivered(client: Client, topic: str) -> int:
    """Have an agent fail on each message of a topic once; how often it got one of them then."""
    app = rr.App("alone", cluster=client.cluster)
    attempts = Counter[bytes]()
    is_done = asyncio.Event()

    @app.agent(app.topic(topic, value_type=bytes))
    async def fail(stream: Any) -> None:
        async for body in stream:
            attempts[body] += 1
            if attempts[body] == 1:
                raise ValueError("as the test wants")
            is_done.set()

    asyncio.run(_run_until(app, is_done))
    return max(attempts.values())


async def _run_until(app: faust.App, is_done: asyncio.Event) -> None:
    await app.start()
    try:
        async with asyncio.timeout(patience(_WAIT_S)):
            await is_done.wait()
    finally:
        await app.stop()


def back(client: Client) -> dict[str, Any]:
    """Use it when the second machine is there again."""
    wait_until(lambda: not any("does not answer" in line for line in client.problems()))
    gone = [queue for queue, disk in enumerate(client.topics.get(TOPIC).disks) if disk]
    with client.producer(ack="disk", timeout_s=patience(_WAIT_S)) as producer:
        for queue_id in gone:
            producer.send(TOPIC, b"back", keys="back", tags="pay", queue_id=queue_id)
    wait_until(lambda: len(client.messages.query("Later", "away")) == 2)
    return {
        "problems": client.problems(),
        "offsets": _offsets(client),
        "taken": sorted(take(client, GROUP, Subscription.tags("pay"), len(gone))),
        "parcels": parcels(client),
    }


def spark(client: Client) -> dict[str, Any]:
    """Read the topic with Spark, as a batch and as a stream, and write a copy, on both disks."""
    address = str(ray.get_runtime_context().gcs_address)
    place = {"topic": TOPIC, "cluster": client.cluster, "rayAddress": address}
    with tempfile.TemporaryDirectory() as directory:
        session = spark_session("joined", short_lived=True, work_directory=Path(directory))
        try:
            read = session.read.format("rocketray").options(**place)
            rows = read.option("sql", "amount >= 40").load().collect()
            stream = session.readStream.format("rocketray").options(**place, tags="pay")
            lake, checkpoint = f"{directory}/lake", f"{directory}/checkpoint"
            paid_ones = stream.option("startingOffsets", "earliest").load()
            to_lake = paid_ones.writeStream.format("parquet").option("path", lake)
            begin = to_lake.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            begin.start().awaitTermination()
            paid = session.read.parquet(lake).collect()
            client.topics.create("Copied", 4)
            copy = session.read.format("rocketray").options(**place | {"topic": "Copied"})
            rows_of_lake = session.read.parquet(lake).select("body", "queueId")
            to_copy = rows_of_lake.write.format("rocketray").options(**place | {"topic": "Copied"})
            to_copy.mode("append").save()
            copied = copy.load().collect()
        finally:
            session.stop()
    return {
        "dear": sorted((row.queueId, row.queueOffset, bytes(row.body).decode()) for row in rows),
        "paid": sorted((row.queueId, row.queueOffset, bytes(row.body).decode()) for row in paid),
        "copied": sorted((row.queueId, bytes(row.body).decode()) for row in copied),
        "copied to": len(client.topics.get("Copied").by_disk()),
        "dataset": _dataset(client, "amount >= 40"),
    }


def _dataset(client: Client, sql: str) -> list[tuple[int, int, str]]:
    """Read the topic with the tasks of Ray Data, which may run on any machine."""
    read = rr.ray_data.TopicDatasource(TOPIC, cluster=client.cluster, sql=sql)
    assert read.supports_distributed_reads
    blocks = [block for task in read.get_read_tasks(2) for block in task()]
    rows = [row for block in blocks for row in block.to_pylist()]
    return sorted((row["queueId"], row["queueOffset"], row["body"].decode()) for row in rows)


def count(client: Client) -> dict[str, Any]:
    """Count words in a table of an app; the next instance continues with what the table had."""
    words = ["red", "blue", "red"]
    return {"first": _counts(client, words), "second": _counts(client, words)}


def _counts(client: Client, words: list[str]) -> dict[str, int]:
    app = rr.App("words", cluster=client.cluster)
    topic = app.topic("Words", key_type=str, value_type=str, queues=2)
    counts = app.Table("counts", default=int)
    handled: list[str] = []
    is_done = asyncio.Event()

    @app.agent(topic)
    async def count_words(stream: Any) -> None:
        async for event in stream.events():
            counts[event.key] += 1
            handled.append(event.key)
            if len(handled) == len(words):
                is_done.set()

    async def run() -> dict[str, int]:
        await app.start()
        try:
            for word in words:
                await topic.send(key=word, value=word)
            async with asyncio.timeout(patience(_WAIT_S)):
                await is_done.wait()
            return {key: counts[key] for key in sorted({*words})}
        finally:
            await app.stop()

    return asyncio.run(run())


def stock(client: Client) -> dict[str, Any]:
    """Read the topic with a stock Faust app, which names the cluster in its broker's URL."""
    wanted = sum(_offsets(client))
    app = faust.App(f"stock-{os.getpid()}", broker=f"rocketray://?cluster={client.cluster}")
    app.conf.web_enabled = False
    topic = app.topic(TOPIC, value_serializer="raw", partitions=4)
    got: list[tuple[int, int]] = []

    async def run() -> None:
        is_done = asyncio.Event()

        @app.agent(topic)  # type: ignore[untyped-decorator]  # Faust's types are not followed
        async def take(stream: Any) -> None:
            async for event in stream.events():
                got.append((event.message.partition, event.message.offset))
                if len(got) == wanted:
                    is_done.set()

        await _run_until(app, is_done)

    asyncio.run(run())
    return {"got": sorted(got)}


def move(client: Client) -> dict[str, Any]:
    """Move a queue, in a process of its own, to the other disk and back, while it is used from here."""
    return _move(client, 1)


def move_in_shared_process(client: Client) -> dict[str, Any]:
    """Do the same with a queue that shares the process of each disk with other topics."""
    return _move(client, "shared")


def _move(client: Client, queues_per_process: QueuesPerProcess) -> dict[str, Any]:
    topic = f"Moving-{os.getpid()}"
    disk = client.topics.create(topic, 2, queues_per_process=queues_per_process).disk_of(0)
    disks = {*client.disks.homes()}
    stopped = []
    with Traffic(client, topic) as traffic:
        for _ in range(2):
            traffic.go_on()
            [disk] = disks - {disk}
            moved: MovedQueue | RoundProgress = RoundProgress()
            while isinstance(moved, RoundProgress):
                ask = partial(client.disks.move, topic, 0, disk, 5.0)
                moved = wait_until_answered(ask, ShardUnavailableError)
            stopped.append(round(moved.stopped_s, 2))
        traffic.go_on()
    some = traffic.sent[:: len(traffic.sent) // 50]
    found = [client.messages.view(offset_id) for _, offset_id in some]
    bodies = [body for body, _ in traffic.sent]
    end = client.shard_statistics(topic)[0].max_queue_offset
    client.topics.delete(topic)
    return {
        "errors": traffic.errors,
        "lost": sorted({*bodies} - {*traffic.read})[:10],
        "repeated": len(traffic.read) - len({*traffic.read}),
        "in order": traffic.read == sorted(traffic.read, key=int),
        "by id": [one.body.decode() for one in found if one] == [body for body, _ in some],
        "sent": len(bodies),
        "end": end,
        "stopped": stopped,
        "silence": gap(traffic.times),
    }


def watch(client: Client) -> dict[str, Any]:
    """Use a queue of each disk, and say of each line that comes in how long each was silent.

    A line "actors" asks for the processes of the joined disk, "coordinator" for that of the
    coordinator, "quiet" for the time since the last message, "far" for the silence of the joined disk
    alone since the line before, any other for that of both. When the lines end, say what became of all messages.
    """
    here = socket.gethostname()
    topics = [
        client.topics.create(f"Watched-{here}-{number}", 1, queues_per_process=1)
        for number in range(2)
    ]
    for topic, disk in zip(topics, sorted(client.disks.homes()), strict=True):
        if topic.disk_of(0) != disk:
            while isinstance(client.disks.move(topic.name, 0, disk, 5.0), RoundProgress):
                pass
    near, far = (Traffic(client, topic.name, is_patient=True) for topic in topics)
    with near, far:
        for line in sys.stdin:
            if line.strip() == "actors":
                said: Any = {name: pid for name, (pid, _) in _of_joined().items()}
            elif line.strip() == "coordinator":
                namespace = namespace_of(client.cluster)
                actor = ray.get_actor(COORDINATOR_NAME, namespace=namespace)
                said = {COORDINATOR_NAME: ray.get(actor.pid.remote())}
            elif line.strip() == "quiet":
                said = {"near": near.quiet(), "far": far.quiet()}
            elif line.strip() == "far":
                far.go_on()
                said = {"far": far.silence()}
            else:
                near.go_on()
                far.go_on()
                said = {"near": near.silence(), "far": far.silence()}
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
    return {
        name: {
            "errors": traffic.errors,
            "sent": len(traffic.sent),
            "lost": len({body for body, _ in traffic.sent} - {*traffic.read}),
            "repeated": len(traffic.read) - len({*traffic.read}),
            "in order": _first_of_each(traffic.read) == sorted({*traffic.read}, key=int),
            "refused": traffic.refused,
        }
        for name, traffic in (("near", near), ("far", far))
    }


def _first_of_each(bodies: list[str]) -> list[str]:
    return list(dict.fromkeys(bodies))


def _offsets(client: Client) -> list[int]:
    found = wait_until_answered(lambda: client.shard_statistics(TOPIC), StreamError)
    return [each.max_queue_offset for each in found]


def _of_joined() -> dict[str, tuple[int, str]]:
    """The process and the Ray node of each actor of the joined disk that lives."""
    return {
        each["Name"]: (each["Pid"], each["Address"]["NodeID"])
        for each in ray._private.state.actors().values()
        if each["State"] == "ALIVE" and "@" in each["Name"]
    }


if len(sys.argv) > 1:
    main(*sys.argv[1:])
else:
    warm()
    serve(main)
