"""RocketMQ's own Java client, driven from Python through py4j; its answers as plain values."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from support.harness.patience import wait_until, wait_until_answered

from rocketray.message import CRC_PROPERTY, StoredMessage

_PULL_COUNT = 32
_QUERY_COUNT = 64
_END_OF_TIME = 2**63 - 1
_PULL_TIMEOUT_MS = 10_000
_ROUTE_S = 60
_SYS_FLAG_COMPRESSED = 0x1  # the client clears it when it has inflated the body
# By the client to what it pulled, and by the store: RocketMQ's clients see its CRC as a property.
_ADDED = {"MIN_OFFSET", "MAX_OFFSET", CRC_PROPERTY}


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a client has it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    offset_id: str
    body: bytes
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    body_crc: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int


def seen(message: StoredMessage) -> Seen:
    """What RocketMQ's client should show of a message that our store read."""
    return Seen(
        message.topic,
        message.queue_id,
        int(message.queue_offset),
        int(message.physical_offset),
        message.size,
        message.offset_message_id,
        message.body,
        dict(message.properties),
        message.flag,
        message.sys_flag & ~_SYS_FLAG_COMPRESSED,
        message.body_crc,
        message.born_timestamp_ms,
        _host(*message.born_host),
        message.store_timestamp_ms,
        _host(*message.store_host),
        message.reconsume_times,
    )


class RocketMQClient:
    """A producer and a pulling consumer; they find the broker *broker* by the name server."""

    def __init__(self, jvm: Any, name_server: str, broker: str) -> None:
        self.rocketmq = jvm.org.apache.rocketmq
        self.new_list = jvm.java.util.ArrayList
        self._broker = broker
        client = self.rocketmq.client
        self.producer = client.producer.DefaultMQProducer(f"sends-{broker}")
        self._consumer = client.consumer.DefaultMQPullConsumer(f"pulls-{broker}")
        self._selector = client.consumer.MessageSelector
        for part in (self.producer, self._consumer):
            part.setNamesrvAddr(name_server)
            part.start()

    def wait_for(self, topic: str) -> None:
        """Until the name server knows that this broker has *topic*: it is told 10 s after the start.

        A broker of the same topic that ended a moment ago is known there for some time.
        """

        def is_known() -> bool:
            with suppress(Py4JJavaError):
                queues = self._consumer.fetchSubscribeMessageQueues(topic)
                return any(queue.getBrokerName() == self._broker for queue in queues)
            return False

        said = f"{self._broker} is not known to have {topic}"
        wait_until(is_known, said, within_s=_ROUTE_S)

    def wait_for_message(self, topic: str, key: str) -> None:
        """Until the broker finds a message with *key*."""
        # The client raises for "no message".
        wait_until_answered(lambda: self.query(topic, key), Py4JJavaError, within_s=_ROUTE_S)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The queue's minimum and maximum offset, by the broker."""
        queue = self._queue(topic, queue_id)
        return self._consumer.minOffset(queue), self._consumer.maxOffset(queue)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset stored at or after a time, by the broker."""
        found: int = self._consumer.searchOffset(self._queue(topic, queue_id), timestamp_ms)
        return found

    def pull(
        self, topic: str, queue_id: int, *, tags: str = "*", sql: str | None = None
    ) -> list[Seen]:
        """All messages of a queue that match, through the broker's filter and the client's."""
        queue = self._queue(topic, queue_id)
        selector = self._selector.byTag(tags) if sql is None else self._selector.bySql(sql)
        at, end = self.offsets(topic, queue_id)
        found: list[Seen] = []
        while at < end:
            result = self._consumer.pull(queue, selector, at, _PULL_COUNT, _PULL_TIMEOUT_MS)
            status = result.getPullStatus().name()
            assert status in {"FOUND", "NO_MATCHED_MSG"}, f"{topic}/{queue_id} at {at}: {status}"
            found += [_seen(message) for message in result.getMsgFoundList() or ()]
            at = result.getNextBeginOffset()
        return found

    def query(self, topic: str, key: str) -> list[Seen]:
        """The messages with a key, by the broker's index."""
        result = self._consumer.queryMessage(topic, key, _QUERY_COUNT, 0, _END_OF_TIME)
        return [_seen(message) for message in result.getMessageList()]

    def view(self, topic: str, message_id: str) -> Seen:
        """The message with an offset id or a unique id."""
        return _seen(self._consumer.viewMessage(topic, message_id))

    def message(
        self,
        topic: str,
        body: bytes,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """A message of the client's own class, to be sent by ``producer``."""
        made = self.rocketmq.common.message.Message(topic, body)
        if tags is not None:
            made.setTags(tags)
        if keys is not None:
            made.setKeys(keys)
        for name, value in (properties or {}).items():
            made.putUserProperty(name, value)
        return made

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.shutdown()
        self.producer.shutdown()

    def _queue(self, topic: str, queue_id: int) -> Any:
        return self.rocketmq.common.message.MessageQueue(topic, self._broker, queue_id)


@contextmanager
def client_jvm(classpath: str, work: Path) -> Iterator[Any]:
    """A JVM for clients, as py4j shows it; it ends with the block."""
    jars = Path(pyspark.__file__).parent / "jars"
    [py4j_jar] = jars.glob("py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=classpath,
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", f"-Duser.home={work}"],
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.close()
        process.stdin.close()
        process.kill()
        process.wait()


def _seen(message: Any) -> Seen:
    return Seen(
        message.getTopic(),
        message.getQueueId(),
        message.getQueueOffset(),
        message.getCommitLogOffset(),
        message.getStoreSize(),
        message.getOffsetMsgId(),
        bytes(message.getBody() or b""),
        {
            str(name): str(value)
            for name, value in message.getProperties().items()
            if str(name) not in _ADDED
        },
        message.getFlag(),
        message.getSysFlag(),
        message.getBodyCRC(),
        message.getBornTimestamp(),
        message.getBornHost().toString(),
        message.getStoreTimestamp(),
        message.getStoreHost().toString(),
        message.getReconsumeTimes(),
    )


def _host(address: str, port: int) -> str:
    """As ``java.net.InetSocketAddress`` writes it: no zeros of an IPv6 address are left out."""
    if ":" not in address:
        return f"/{address}:{port}"
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    return f"/[{':'.join(f'{int(group, 16):x}' for group in groups)}]:{port}"
