"""The topics of a cluster and the identity of each shard, as plain values and JSON.

The file has the form of RocketMQ's ``topics.json``; what RocketMQ has no field for stands in a
topic's ``attributes``. Store hosts are handed out from one counter and never used twice: the
10.x.y.z address carries the number, so a lookup by message id finds the shard without a search.

Invariant: a shard's store host is written to disk before its directory is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.names import (
    check_case_clash,
    check_queue_count,
    check_topic,
    is_hosted_by_name,
)
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .files import as_written, read_json, write_json
from .layout import config_directory
from .system_retention import default_retention, is_kept_by_node

__all__ = ["SHARD_PORT", "BitmapMode", "TopicCatalog", "TopicConfig"]

SHARD_PORT = 10911  # RocketMQ's broker port; part of an identity, nobody listens there
_SHARD_NUMBER_MAX = (1 << 24) - 1  # what is left of 10.0.0.0/8
_PERM_READ_WRITE = 6
_READABLE = 4
_WRITABLE = 2
_HOSTED = "shards.hosted"
_RETENTION_MS, _RETENTION_BYTES = "retention.ms", "retention.bytes"
_BITMAPS = "filter.bitmaps"
BitmapMode = Literal["auto", "on", "off"]
_CLEANUP, _COMPACTION = "cleanup.policy", "COMPACTION"  # as RocketMQ names them


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic: its queues, what may be done with it, how long it keeps what, store hosts.

    The shards of a ``hosted`` topic share one actor (see shard_host.py). ``bitmaps`` says whether
    they keep filter bitmaps: always, never, or where that pays (see bitmap_orders.py).
    """

    name: str
    queues: int
    store_hosts: tuple[tuple[str, int], ...]
    perm: int = _PERM_READ_WRITE
    retention: RetentionPolicy = KEEP_ALL
    hosted: bool = False
    bitmaps: BitmapMode = "auto"

    @property
    def writable(self) -> bool:
        """Whether producers may send to it."""
        return bool(self.perm & _WRITABLE)

    @property
    def readable(self) -> bool:
        """Whether consumers may read it."""
        return bool(self.perm & _READABLE)

    def to_json(self) -> dict[str, Any]:
        """The topic as RocketMQ's ``TopicConfig`` writes it."""
        return {
            "topicName": self.name,
            "readQueueNums": self.queues,
            "writeQueueNums": self.queues,
            "perm": self.perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {
                "store.hosts": ",".join(f"{ip}:{port}" for ip, port in self.store_hosts),
                **_retention_attributes(self.retention),
                **({_HOSTED: "true"} if self.hosted else {}),
                **({_BITMAPS: self.bitmaps} if self.bitmaps != "auto" else {}),
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TopicConfig:
        """The topic that :meth:`to_json` wrote; raises :class:`ConfigError` when it is not one."""
        try:
            hosts = [text.rpartition(":") for text in value["attributes"]["store.hosts"].split(",")]
            config = cls(
                name=check_topic(value["topicName"]),
                queues=check_queue_count(value["readQueueNums"]),
                store_hosts=tuple((ip, int(port)) for ip, _, port in hosts),
                perm=int(value["perm"]),
                retention=_retention(value["attributes"]),
                hosted=value["attributes"].get(_HOSTED) == "true",
                bitmaps=_bitmap_mode(value["attributes"].get(_BITMAPS, "auto")),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"topics.json has an entry that is not a topic: {error!r}") from None
        if len(config.store_hosts) != config.queues:
            raise ConfigError(
                f"topics.json: topic {config.name!r} has {config.queues} queues "
                f"and {len(config.store_hosts)} store hosts; restore the file from a copy"
            )
        return config


@dataclass(frozen=True, slots=True)
class TopicCatalog:
    """All topics; every change makes a new catalog, which the owner saves before it acts on it."""

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    next_shard_number: int = 1

    @classmethod
    def load(cls, data: Path) -> TopicCatalog:
        """The catalog in a data directory; empty when there is none."""
        value = read_json(config_directory(data) / "topics.json")
        if value is None:
            return cls()
        with as_written(config_directory(data), "topics.json"):
            table = value["topicConfigTable"]
            topics = {name: TopicConfig.from_json(entry) for name, entry in table.items()}
            return cls(topics, int(value["nextShardNumber"]))

    def save(self, data: Path) -> None:
        """Write the catalog; it is on disk when this returns."""
        write_json(
            config_directory(data) / "topics.json",
            {
                "topicConfigTable": {name: topic.to_json() for name, topic in self.topics.items()},
                "nextShardNumber": self.next_shard_number,
            },
        )

    def get(self, topic: str) -> TopicConfig:
        """The topic, or :class:`TopicNotFoundError`."""
        try:
            return self.topics[topic]
        except KeyError:
            raise TopicNotFoundError(topic) from None

    def queues(self) -> dict[str, int]:
        """The number of queues of each topic."""
        return {name: topic.queues for name, topic in self.topics.items()}

    def with_topic(
        self,
        name: str,
        queues: int,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        hosted: bool = False,
    ) -> TopicCatalog:
        """The catalog with a new topic, or with more queues on an existing one.

        *retention* and *hosted* are for a new one; an old one stays as it is. Topics that a node
        keeps for itself are hosted by their name, and have limits by it (system_retention.py).

        Raises:
            ConfigError: a queue would be taken away; its messages would be out of reach.
        """
        check_topic(name)
        check_queue_count(queues)
        check_case_clash("topic", name, self.topics)
        existing = self.topics.get(name)
        hosts = existing.store_hosts if existing else ()
        if existing and queues < existing.queues:
            raise ConfigError(
                f"topic {name!r} has {existing.queues} queues and cannot be cut to {queues}: "
                "messages would be out of reach; make a new topic instead"
            )
        added = queues - len(hosts)
        if self.next_shard_number + added > _SHARD_NUMBER_MAX:
            raise ConfigError(f"this cluster has handed out all its {_SHARD_NUMBER_MAX} shards")
        hosts += tuple(_store_host(self.next_shard_number + index) for index in range(added))
        is_hosted = hosted or is_hosted_by_name(name)
        if retention.keeps_all:
            retention = default_retention(name)
        topic = TopicConfig(name, queues, hosts, retention=retention, hosted=is_hosted)
        if existing:
            topic = replace(existing, queues=queues, store_hosts=hosts)
        return TopicCatalog({**self.topics, name: topic}, self.next_shard_number + added)

    def with_permission(self, name: str, perm: int) -> TopicCatalog:
        """The catalog with other permissions on a topic: 2 write, 4 read, 6 both."""
        if perm not in (_WRITABLE, _READABLE, _PERM_READ_WRITE):
            raise ConfigError(f"permission {perm} is not 2 (write), 4 (read) or 6 (both)")
        topics = {**self.topics, name: replace(self.get(name), perm=perm)}
        return replace(self, topics=topics)

    def with_retention(self, name: str, retention: RetentionPolicy) -> TopicCatalog:
        """The catalog with another retention on a topic.

        Raises:
            ConfigError: the node itself knows what the topic still needs.
        """
        if is_kept_by_node(name):
            raise ConfigError(
                f"topic {name!r} holds messages that wait for their time, or for a decision; the "
                "node removes what it is done with, and nothing before"
            )
        return replace(
            self, topics={**self.topics, name: replace(self.get(name), retention=retention)}
        )

    def with_bitmaps(self, name: str, mode: str) -> TopicCatalog:
        """The catalog with another word on filter bitmaps of a topic: auto, on or off."""
        changed = replace(self.get(name), bitmaps=_bitmap_mode(mode))
        return replace(self, topics={**self.topics, name: changed})

    def without_topic(self, name: str) -> TopicCatalog:
        """The catalog without a topic; its store hosts are not used again."""
        self.get(name)
        return replace(self, topics={key: v for key, v in self.topics.items() if key != name})

    def shard_of_host(self, host: tuple[str, int]) -> tuple[str, int] | None:
        """The (topic, queue id) whose messages carry *host* in their offset ids, or None."""
        for topic in self.topics.values():
            if host in topic.store_hosts:
                return topic.name, topic.store_hosts.index(host)
        return None


def _bitmap_mode(mode: str) -> BitmapMode:
    if mode not in get_args(BitmapMode):
        raise ConfigError(f"bitmaps are {mode!r}, which is not auto, on or off")
    return cast("BitmapMode", mode)


def _store_host(number: int) -> tuple[str, int]:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", SHARD_PORT


def _retention_attributes(retention: RetentionPolicy) -> dict[str, str]:
    limits = {_RETENTION_MS: retention.max_age_ms, _RETENTION_BYTES: retention.max_bytes}
    attributes = {name: str(limit) for name, limit in limits.items() if limit is not None}
    return {**attributes, **({_CLEANUP: _COMPACTION} if retention.compacts else {})}


def _retention(attributes: Mapping[str, str]) -> RetentionPolicy:
    age, size = attributes.get(_RETENTION_MS), attributes.get(_RETENTION_BYTES)
    return RetentionPolicy(
        None if age is None else int(age),
        None if size is None else int(size),
        compacts=attributes.get(_CLEANUP) == _COMPACTION,
    )
