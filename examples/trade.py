"""One topic, four systems, and each gets what it subscribed to.

    python examples/trade.py

Trade carries order, pay and logistics messages. A system says which tags it wants, in a consumer
group of its own, so all four see the same messages, each at its own pace. The filter runs beside
the log, on hashes of the tags: "Aa" and "BB" have the same hash, so both come through it, and
the consumer's comparison of the text tells them apart.
"""

from __future__ import annotations

import tempfile
import time

from rocketray.actors.client import Connection
from rocketray.actors.consumer import GroupConsumer
from rocketray.actors.node import ensure_node
from rocketray.filters.subscription import Subscription

SYSTEMS = {
    "logistics": "logistics",
    "payment": "pay",
    "success rate": "order || pay",
    "real time": "*",
    "collision": "Aa",
}
MESSAGES = [
    ("order", "order 17: two books"),
    ("pay", "order 17: paid 120"),
    ("logistics", "order 17: on its way"),
    ("order", "order 18: a lamp"),
    ("Aa", "tag Aa"),
    ("BB", "tag BB, with the hash of Aa"),
]


def subscribe(node: Connection, system: str) -> GroupConsumer:
    """Join the system's own group as its one member."""
    group = f"trade-{system.replace(' ', '-')}"
    return node.consumer(group, "Trade", Subscription.tags(SYSTEMS[system]))


def receive(consumer: GroupConsumer) -> list[str]:
    """What is there now; committed, so that it does not come again."""
    texts = []
    for batch in consumer.poll(timeout_s=0.1):
        texts += [body.decode() for body in batch.bodies()]
        consumer.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return texts


def main() -> None:
    """Run a node for a moment, send, and show what each system got."""
    with tempfile.TemporaryDirectory() as data, ensure_node(data) as node:
        node.create_topic("Trade", queues=2)
        systems = {system: subscribe(node, system) for system in SYSTEMS}
        with node.producer() as producer:
            for tag, text in MESSAGES:
                producer.send(
                    "Trade", text.encode(), tags=tag, sharding_key="one order after another"
                )
        received: dict[str, list[str]] = {system: [] for system in SYSTEMS}
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for system, consumer in systems.items():
                received[system] += receive(consumer)
        for system, texts in received.items():
            print(f"{system:12}  {SYSTEMS[system]:12}  {' | '.join(texts)}")
        for consumer in systems.values():
            consumer.close()


if __name__ == "__main__":
    main()
