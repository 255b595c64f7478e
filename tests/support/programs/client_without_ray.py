"""A program on a node's machine that makes each kind of call, and tells whether it loaded Ray.

It prints a JSON object: what it did, and the engines among its modules.
"""

from __future__ import annotations

import asyncio
import json
import sys

import rocketray as rr
from rocketray.errors import NodeNotRunningError

TOPIC, ENGINES = "Trade", ("ray", "faust", "pyspark")


async def send_in_a_task(data: str) -> str:
    async with rr.AsyncProducer(data) as producer:
        return (await producer.send(TOPIC, b"in a task")).message_id


def send(data: str) -> str:
    with rr.Producer(data) as producer:
        first = producer.send(TOPIC, b"first", keys="k", tags="pay").message_id
        producer.send_async(TOPIC, b"async").result()
        producer.send_oneway(TOPIC, b"one way")
        producer.send_many(TOPIC, [rr.Message(TOPIC, b"listed")] * 3)
        producer.send(TOPIC, b"later", delay=3600)
        producer.send(TOPIC, b"in order", sharding_key="a", ack="disk")
    return first


def main(data: str) -> None:
    done: dict[str, object] = {}
    with rr.Client(data) as client:
        client.topics.create(TOPIC, 2)
        first = send(data)
        asyncio.run(send_in_a_task(data))
        with client.producer() as producer:
            producer.send(TOPIC, b"of the client")
        with client.consumer("readers", TOPIC, rr.Subscription.tags("*")) as member:
            bodies: list[bytes] = []
            while len(bodies) < 9:
                for batch in member.poll():
                    bodies += [message.body for message in batch.messages()]
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        done["read"] = len(bodies)
        done["found"] = len(client.messages.query(TOPIC, "k"))
        done["explained"] = str(client.explain(first).cause)
        done["groups"] = [group.group for group in client.groups.all()]
    try:
        rr.Client(f"{data}-of-nobody")
    except NodeNotRunningError:
        done["nobody"] = "is told"
    done["engines"] = [name for name in ENGINES if name in sys.modules]
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1])
