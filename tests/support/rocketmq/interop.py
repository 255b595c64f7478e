"""What the tests of ``make interop`` share: RocketMQ running, a directory of ours, how we read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.nodes.stores import read_all

from rocketray.base.config import StoreConfig
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.runtime.clock import system_clock_ms
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.message_store import MessageStore

from .rocketmq import Broker, free_port
from .rocketmq_client import RocketMQClient, Seen, seen

Queues = dict[tuple[str, int], list[Seen]]
LONG_TOPIC = "%RETRY%" + "g" * 200  # a record of version 2
QUEUES = {"Trade": 3, "Refund": 1, LONG_TOPIC: 1}
SQL = "amount BETWEEN 10 AND 99 AND region IN ('eu', 'us') OR TAGS = 'größe'"
_TAGS = (None, "pay", "Aa", "BB", "größe")  # Aa and BB have one tags code
_BORN_HOSTS = (("192.0.2.7", 4711), ("2001:db8::1", 4712))
_BATCH = 7
_BATCHES = 120


@dataclass(frozen=True, slots=True)
class RocketMQ:
    """A name server and a JVM, and where brokers may write."""

    classpath: str
    work: Path
    name_server: str
    jvm: Any

    def broker(self, name: str, directory: Path, config: StoreConfig, **more: object) -> Broker:
        """A broker over *directory*, with *more* settings; to be used as a context manager."""
        return Broker(
            self.classpath,
            self.work / name,
            name=name,
            name_server=self.name_server,
            directory=directory,
            config=config,
            more=more,
        )

    @contextmanager
    def client(self, broker: str) -> Iterator[RocketMQClient]:
        """A client of one broker."""
        client = RocketMQClient(self.jvm, self.name_server, broker)
        yield client
        client.close()


def small_files() -> StoreConfig:
    """Sizes with which a few hundred messages fill several files of every kind."""
    return StoreConfig(
        commit_log_segment_bytes=64 * 1024,
        consume_queue_segment_entries=50,
        index_hash_slots=100,
        index_entries=400,
        store_host=("127.0.0.1", free_port()),  # where the broker will listen
    )


def write_store(directory: Path, config: StoreConfig) -> None:
    """Topics, queues, every kind of tag, keys, and hosts of both kinds."""
    catalog = TopicCatalog()
    for topic, queues in QUEUES.items():
        catalog = catalog.with_topic(topic, queues)
    catalog.save(directory)
    topics = list(QUEUES)
    with MessageStore(directory, config, clock_ms=system_clock_ms) as store:
        for number in range(_BATCHES):
            topic = topics[number % 3]
            first = number * _BATCH
            batch = _batch(topic, first, _BORN_HOSTS[number % 2])
            store.append(topic, number // 3 % QUEUES[topic], batch)


def packed_batch(topic: str, first: int) -> bytes:
    """Messages such as those, as a producer sends them to a shard."""
    return pack_batch(_batch(topic, first, _BORN_HOSTS[0]))


def read_directory(directory: Path, config: StoreConfig) -> Queues:
    """All messages by queue, read with ours as the directory lies."""
    with MessageStore(directory, config, read_only=True, clock_ms=system_clock_ms) as store:
        return {
            queue: [seen(message) for message in read_all(store, *queue)]
            for queue in store.reads.queues()
        }


def read_matching(
    directory: Path, config: StoreConfig, queue: tuple[str, int], subscription: Subscription
) -> list[Seen]:
    """A queue's messages through our filter: the broker's part, then the consumer's."""
    chosen = MessageFilter(subscription)
    found: list[Seen] = []
    with MessageStore(directory, config, read_only=True, clock_ms=system_clock_ms) as store:
        at, end = int(store.reads.min_queue_offset(*queue)), store.reads.max_queue_offset(*queue)
        while at < end:
            result = store.reads.get_message(*queue, at, 100, chosen)
            found += [seen(one) for one in result.messages if chosen.matches_tags(one.tags)]
            at = result.next_queue_offset
    return found


def _batch(topic: str, first: int, born_host: tuple[str, int]) -> EncodedBatch:
    messages = [_message(topic, first + i) for i in range(_BATCH)]
    return encode_messages(messages, born_host=born_host, clock_ms=system_clock_ms)


def _message(topic: str, number: int) -> Message:
    return Message(
        topic,
        f"message {number} ".encode() * (number % 9),
        tags=_TAGS[number % len(_TAGS)],
        keys=(f"key-{number}", "every") if number % 3 else (),
        properties={"amount": str(number), "region": ("eu", "us", "asia")[number % 3]},
        flag=number,
        unique_key=f"{number:032X}",
    )
