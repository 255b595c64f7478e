"""One topic, four systems, and each gets what it subscribed to: python examples/trade.py.

Trade carries order, pay and logistics messages. Each system is a consumer group of its own and
says which tags it wants, so all of them see the same messages, at their own pace. The filter runs
beside the log, on hashes of the tags. "Aa" and "BB" have the same hash, so both come through it;
then the consumer compares the texts, and the fifth group gets only what it asked for.
"""

from __future__ import annotations

import tempfile
import time

import rocketray as rr

SYSTEMS = {
    "logistics": "logistics",
    "payment": "pay",
    "success-rate": "order || pay",
    "real-time": "*",
    "collision": "Aa",
}
MESSAGES = [
    ("order", "order 17: two books"),
    ("pay", "order 17: paid 120"),
    ("logistics", "order 17: on its way"),
    ("order", "order 18: a lamp"),
    ("Aa", "a tag"),
    ("BB", "another tag with the same hash"),
]
SECONDS = 3


def main() -> None:
    """Run a node for a moment, send the messages, and show what each system got."""
    with tempfile.TemporaryDirectory() as data, rr.Node(data) as node, node.connection() as client:
        client.create_topic("Trade", queues=2)
        systems = {
            name: client.consumer(f"trade-{name}", "Trade", rr.Subscription.tags(tags))
            for name, tags in SYSTEMS.items()
        }
        with client.producer() as producer:
            for tag, text in MESSAGES:
                producer.send("Trade", text.encode(), tags=tag, sharding_key="one after the other")

        received: dict[str, list[str]] = {name: [] for name in SYSTEMS}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for name, consumer in systems.items():
                for batch in consumer.poll(timeout_s=0.1):
                    received[name] += [body.decode() for body in batch.bodies()]
                    consumer.commit(batch.topic, batch.queue_id, batch.next_queue_offset)

        for name, texts in received.items():
            print(f"{name:12}  {SYSTEMS[name]:12}  {' | '.join(texts)}")
        for consumer in systems.values():
            consumer.close()


if __name__ == "__main__":
    main()
