"""The topics of a cluster and the identity of each shard, as plain values and JSON.

The file has the form of RocketMQ's ``topics.json``; settings without a RocketMQ field are in a
topic's ``attributes``. Store hosts are assigned from one counter and never reused: the 10.x.y.z
address has the number, so a lookup by message id finds the shard without a search.

Invariants
  1. A shard's store host is written to disk before its directory is created.
  2. A deleted topic stays in the catalog, with its store hosts, until all its files are removed; no
     topic is created under its name before that.
  3. A topic has one id from its creation to its end, and no other topic ever has that id: a topic
     that is recreated under the name of a deleted one has a new id.
  4. A queue is recorded as made when it first answers. From then on it has a directory for good; a
     directory that is missing was lost, and is not created again (topic_files.py).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, Unpack, cast, get_args

from rocketray.base.ack_mode import AckMode, check_ack, durability_of
from rocketray.base.file_form import FileForm
from rocketray.base.meant import meant
from rocketray.base.names import (
    SHARED,
    QueuesPerProcess,
    check_case_clash,
    check_queue_count,
    check_queues_per_process,
    check_topic,
)
from rocketray.base.quantity import counted
from rocketray.base.system_topics import is_emptied_by_service, is_internal_by_name
from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.runtime.calls.endpoint import on_disk
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_state, write_json
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .placement import ONE_EACH, Placement
from .process_names import SHARED_PROCESS, common_process, process_of_topic
from .service_queues import disks_of, is_on_each_disk
from .system_retention import default_retention
from .topic_attributes import (
    disks_in,
    processes_in,
    queues_per_process_in,
    retention_in,
    topic_id_in,
)
from .topic_options import TopicOptions

_SHARD_PORT = 10911  # RocketMQ's broker port; part of an identity, no process listens there
_SHARD_NUMBER_MAX = (1 << 24) - 1  # the rest of 10.0.0.0/8
_PERM_READ_WRITE = 6
_READABLE = 4  # the bits of RocketMQ's PermName
_WRITABLE = 2
_INTERNAL = "topic.internal"
_PROCESSES, _QUEUES_PER_PROCESS = "queues.processes", "queues.per.process"
_COMMON = "queues.common"
_DISKS = "queues.disks"
_MOVES = "queues.moves"
_RETENTION_MS, _RETENTION_BYTES = "retention.ms", "retention.bytes"
_BITMAPS = "filter.bitmaps"
_ACK = "ack.mode"
_TOPIC_ID = "topic.id"
_MADE = "queues.made"
_FORM = FileForm("config/topics.json")
BitmapMode = Literal["auto", "on", "off"]
_NEAR = 0.75
"""The least similarity of a topic that is suggested in place of an unknown one."""
_CLEANUP, _COMPACTION = "cleanup.policy", "COMPACTION"  # as RocketMQ names them


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic: its queues, permissions, retention and store hosts.

    ``topic_id`` is 32 hexadecimal digits (invariant 3). It is saved with the topic's offsets
    wherever they are kept: offsets are invalid in a topic with another id. An ``internal`` topic
    belongs to the node or to an app itself, such as retries, changelogs and replies.
    ``processes`` has the number of each queue's process, among those of the topic, or with
    ``common`` among those of its disk; it is empty if they are in the shared processes (see
    placement.py). ``queues_per_process`` is what was asked for. ``disks`` has the disk of each
    queue: the UUID of a joined disk, or empty text for the disk that has the coordinator; it is
    empty if all queues are there.
    ``bitmaps`` says whether the shards keep filter bitmaps: always, never, or if that pays off (see
    bitmap_orders.py). ``made`` are the queues that have answered once. ``moves`` counts how
    often a queue was moved to another disk. ``ack`` is that of :class:`TopicOptions`, ``node_ack``
    that of the catalog.
    """

    name: str
    queues: int
    store_hosts: tuple[tuple[str, int], ...]
    topic_id: str
    perm: int = _PERM_READ_WRITE
    retention: RetentionPolicy = KEEP_ALL
    internal: bool = False
    processes: tuple[int, ...] = ()
    common: bool = False
    queues_per_process: QueuesPerProcess = None
    bitmaps: BitmapMode = "auto"
    made: frozenset[int] = field(default=frozenset(), compare=False)
    disks: tuple[str, ...] = ()
    moves: int = 0
    ack: AckMode | None = None
    node_ack: AckMode = "memory"

    @property
    def default_ack(self) -> AckMode:
        """When a message to it counts as stored if its sender does not say."""
        return self.ack or self.node_ack

    @property
    def writable(self) -> bool:
        return bool(self.perm & _WRITABLE)

    @property
    def readable(self) -> bool:
        return bool(self.perm & _READABLE)

    def process_of(self, queue_id: int) -> str:
        name = SHARED_PROCESS
        if self.processes:
            number = self.processes[queue_id]
            name = common_process(number) if self.common else process_of_topic(self.name, number)
        return on_disk(name, self.disk_of(queue_id))

    def disk_of(self, queue_id: int) -> str:
        """Return the disk of a queue; empty for the one that has the coordinator."""
        return self.disks[queue_id] if self.disks else ""

    def by_process(self, queues: Iterable[int] | None = None) -> dict[str, list[int]]:
        """Return the processes of all queues, or of some, each with its queues."""
        return self._by(self.process_of, queues)

    def by_disk(self, queues: Iterable[int] | None = None) -> dict[str, list[int]]:
        """Return the disks of all queues, or of some, each with its queues."""
        return self._by(self.disk_of, queues)

    def queue_on(self, disk: str, number: int) -> int | None:
        """Return the queue with that number among those on a disk; None if it has not as many."""
        queues = self.by_disk().get(disk, ())
        return queues[number] if number < len(queues) else None

    def _by(self, of: Callable[[int], str], queues: Iterable[int] | None) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for queue_id in range(self.queues) if queues is None else queues:
            found.setdefault(of(queue_id), []).append(queue_id)
        return found

    def check_queue(self, queue_id: int) -> None:
        """Raise :class:`ConfigError` if the topic has no queue of that number."""
        is_number = hasattr(queue_id, "__index__") and not isinstance(queue_id, bool)
        if not is_number or not 0 <= queue_id < self.queues:
            raise ConfigError(
                f"topic {self.name!r} has the queues 0 to {self.queues - 1}, not {queue_id!r:.60}; "
                "give the number of one"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the topic as RocketMQ's ``TopicConfig`` writes it."""
        attributes = {
            "store.hosts": ",".join(f"{ip}:{port}" for ip, port in self.store_hosts),
            _TOPIC_ID: self.topic_id,
            _RETENTION_MS: self.retention.max_age_ms,
            _RETENTION_BYTES: self.retention.max_bytes,
            _CLEANUP: _COMPACTION if self.retention.compacts else None,
            _INTERNAL: "true" if self.internal else None,
            _PROCESSES: ",".join(map(str, self.processes)),
            _COMMON: "true" if self.common else None,
            _QUEUES_PER_PROCESS: self.queues_per_process,
            _DISKS: ",".join(self.disks) if self.disks else None,
            _MOVES: self.moves or None,
            _BITMAPS: None if self.bitmaps == "auto" else self.bitmaps,
            _MADE: ",".join(map(str, sorted(self.made))) or None,
            _ACK: self.ack,
        }
        return {
            "topicName": self.name,
            "readQueueNums": self.queues,
            "writeQueueNums": self.queues,
            "perm": self.perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {
                key: str(value) for key, value in attributes.items() if value is not None
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], node_ack: AckMode = "memory") -> TopicConfig:
        """Return the topic that :meth:`to_json` wrote; raises :class:`ConfigError` otherwise."""
        try:
            name, attributes = check_topic(value["topicName"]), value["attributes"]
            parts = [text.rpartition(":") for text in attributes["store.hosts"].split(",")]
            hosts = tuple((ip, int(port)) for ip, _, port in parts)
            config = cls(
                name=name,
                queues=check_queue_count(value["readQueueNums"]),
                store_hosts=hosts,
                topic_id=topic_id_in(attributes.get(_TOPIC_ID), name, hosts[0]),
                perm=int(value["perm"]),
                retention=retention_in(
                    attributes.get(_RETENTION_MS),
                    attributes.get(_RETENTION_BYTES),
                    compacts=attributes.get(_CLEANUP) == _COMPACTION,
                ),
                internal=attributes.get(_INTERNAL) == "true" or is_internal_by_name(name),
                processes=processes_in(attributes.get(_PROCESSES), name, len(hosts)),
                common=attributes.get(_COMMON) == "true",
                queues_per_process=queues_per_process_in(attributes.get(_QUEUES_PER_PROCESS)),
                bitmaps=_bitmap_mode(attributes.get(_BITMAPS, "auto")),
                made=frozenset(map(int, filter(None, attributes.get(_MADE, "").split(",")))),
                disks=disks_in(attributes.get(_DISKS)),
                moves=int(attributes.get(_MOVES, 0)),
                ack=check_ack(attributes.get(_ACK)),
                node_ack=node_ack,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"topics.json has an entry that is not a topic: {error!r}") from None
        for what, count in (
            ("store hosts", len(config.store_hosts)),
            ("queues with a process", len(config.processes) or config.queues),
            ("queues with a disk", len(config.disks) or config.queues),
        ):
            if count != config.queues:
                raise ConfigError(
                    f"topics.json: topic {config.name!r} has "
                    f"{counted(config.queues, 'queue')}, and the number of its {what} is {count}; "
                    "restore the file from a copy"
                )
        return config


@dataclass(frozen=True, slots=True)
class TopicCatalog:
    """All topics; a change returns a new catalog, which the owner saves before it acts on it."""

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    next_shard_number: int = 1
    deleted: Mapping[str, TopicConfig] = field(default_factory=dict)
    """Deleted topics that may still have files (invariant 2)."""
    ack: AckMode = "memory"
    """The ack mode of topics that have none of their own."""

    @classmethod
    def load(cls, data: Path) -> TopicCatalog:
        """Return the catalog in a data directory, or an empty one; raises as ``read_state``."""
        catalog = read_state(config_directory(data) / "topics.json", parse_catalog)
        return cls() if catalog is None else catalog

    def save(self, data: Path) -> None:
        """Write the catalog; it is on disk when this returns."""
        write_json(config_directory(data) / "topics.json", catalog_json(self))

    def get(self, topic: str) -> TopicConfig:
        """Return the topic, or raise :class:`TopicNotFoundError`."""
        try:
            return self.topics[topic]
        except KeyError:
            open_topics = [name for name, each in self.topics.items() if not each.internal]
            near = meant(topic, open_topics, cutoff=_NEAR) if isinstance(topic, str) else []
            raise TopicNotFoundError(topic, near="".join(near)) from None

    def with_topic(
        self,
        name: str,
        queues: int,
        placement: Placement = ONE_EACH,
        **options: Unpack[TopicOptions],
    ) -> TopicCatalog:
        """Return the catalog with a new topic, or with more queues on an existing one.

        The *options* are for a new topic; an existing one keeps its own. System topics
        are internal by their name, and have limits by it (system_retention.py). Internal topics are
        in the shared processes: those of the services have queues on each disk, whatever *queues*
        is, retries at least one, and others are on the coordinator's disk.

        Raises:
            ConfigError: a queue would be removed; its messages would be out of reach. Or a
                topic of that name was deleted and still has files. Or the cluster has given nearly
                all its shard numbers.
        """
        if name in self.deleted:
            raise ConfigError(
                f"topic {name!r} was deleted, and its files are not removed yet; nothing was "
                "created: start the node again, which removes them, or says in rocketray status "
                "why they stay"
            )
        check_topic(name)
        check_queue_count(queues)
        check_case_clash("topic", name, self.topics)
        existing = self.topics.get(name)
        hosts = existing.store_hosts if existing else ()
        if existing and queues < existing.queues and not is_on_each_disk(name):
            raise ConfigError(
                f"topic {name!r} has {counted(existing.queues, 'queue')} and cannot be reduced to "
                f"{queues}: messages would be lost; create a new topic instead"
            )
        internal = options.get("internal", False) or is_internal_by_name(name)
        present = () if existing is None else existing.disks or ("",) * existing.queues
        disks = disks_of(name, queues, present, placement, internal=internal)
        queues = len(disks)
        added = queues - len(hosts)
        left = 1 + _SHARD_NUMBER_MAX - self.next_shard_number
        if added > left:
            raise ConfigError(
                f"topic {name!r} needs {added} more shard numbers, and {left} of the "
                f"{_SHARD_NUMBER_MAX} of this cluster are left: a number is given once, also if its "
                "topic is deleted; create it with fewer queues, or in another cluster"
            )
        hosts += tuple(_store_host(self.next_shard_number + index) for index in range(added))
        retention = options.get("retention", KEEP_ALL)
        if retention.keeps_all:
            retention = default_retention(name)
        new_id = uuid.uuid4().hex
        asked = SHARED if internal else check_queues_per_process(options.get("queues_per_process"))
        topic = existing or TopicConfig(
            name,
            *(0, (), new_id),
            retention=retention,
            internal=internal,
            queues_per_process=asked,
            ack=check_ack(options.get("ack")),
            node_ack=self.ack,
        )
        topic = self._placed(topic, disks, placement, is_new=existing is None)
        topic = replace(topic, queues=queues, store_hosts=hosts)
        return replace(self._with(topic), next_shard_number=self.next_shard_number + added)

    def _placed(
        self, topic: TopicConfig, disks: Sequence[str], placement: Placement, *, is_new: bool
    ) -> TopicConfig:
        """Return a topic whose queues are on *disks*, and in processes there."""
        processes, own = topic.processes, topic.queues_per_process
        # Neither the topic nor the node says it; an existing topic keeps its kind of process.
        common = (own or placement.queues_per_process) is None if is_new else topic.common
        if common:
            loads = Counter[tuple[str, int]]()
            for each in self.topics.values():
                if each.common:
                    loads.update(zip(each.disks or repeat(""), each.processes, strict=False))
            processes = placement.place_common(processes, disks, loads)
        elif is_new or processes:  # else it stays in the shared processes
            processes = placement.place_own(processes, disks, own)
        placed = tuple(disks) if any(disks) else ()
        return replace(topic, disks=placed, processes=processes, common=common)

    def with_disk(self, name: str, queue_id: int, disk: str) -> TopicCatalog:
        topic = self.get(name)
        disks = list(topic.disks or ("",) * topic.queues)
        disks[queue_id] = disk
        kept = (*disks,) if any(disks) else ()
        return self._with(replace(topic, disks=kept, moves=topic.moves + 1))

    def with_disks_renamed(self, renamed: Callable[[str], str]) -> TopicCatalog:
        topics, deleted = (
            {
                name: replace(topic, disks=tuple(map(renamed, topic.disks)))
                for name, topic in each.items()
            }
            for each in (self.topics, self.deleted)
        )
        return replace(self, topics=topics, deleted=deleted)

    def of_disk(self, disk: str) -> TopicCatalog:
        there = {name: topic for name, topic in self.topics.items() if disk in topic.by_disk()}
        return replace(self, topics=there, deleted={})

    def with_made(self, made: Mapping[str, Iterable[int]]) -> TopicCatalog:
        """Return the catalog that records, by topic, which queues were made."""
        noted = {
            name: replace(topic, made=topic.made.union(made[name]))
            for name, topic in self.topics.items()
            if name in made and not topic.made.issuperset(made[name])
        }
        return replace(self, topics={**self.topics, **noted}) if noted else self

    def with_permission(self, name: str, perm: int) -> TopicCatalog:
        """Return the catalog with other permissions on a topic: 2 write, 4 read, 6 both."""
        if perm not in (_WRITABLE, _READABLE, _PERM_READ_WRITE):
            raise ConfigError(f"permission {perm} is not 2 (write), 4 (read) or 6 (both)")
        return self._with(replace(self.get(name), perm=perm))

    def with_retention(self, name: str, retention: RetentionPolicy) -> TopicCatalog:
        """Return the catalog with another retention on a topic.

        Raises:
            ConfigError: it is a topic of a service, which removes the messages itself.
        """
        if is_emptied_by_service(name):
            raise ConfigError(
                f"topic {name!r} holds delayed or undecided messages; only the node removes them, "
                "when it has processed them"
            )
        return self._with(replace(self.get(name), retention=retention))

    def with_bitmaps(self, name: str, mode: str) -> TopicCatalog:
        """Return the catalog with another bitmap mode of a topic: auto, on or off."""
        return self._with(replace(self.get(name), bitmaps=_bitmap_mode(mode)))

    def with_ack(self, name: str, ack: AckMode | None) -> TopicCatalog:
        """Return the catalog with another ack mode of a topic; None leaves it to the node."""
        return self._with(replace(self.get(name), ack=check_ack(ack)))

    def with_node_ack(self, ack: AckMode) -> TopicCatalog:
        """Return the catalog with another ack mode of topics that have none of their own."""
        durability_of(ack)
        topics = {name: replace(topic, node_ack=ack) for name, topic in self.topics.items()}
        return replace(self, topics=topics, ack=ack)

    def without_topic(self, name: str) -> TopicCatalog:
        """Return the catalog without a topic, which may still have files; its hosts are used up."""
        return replace(
            self,
            topics={key: topic for key, topic in self.topics.items() if key != name},
            deleted={**self.deleted, name: self.get(name)},
        )

    def without_deleted(self, name: str) -> TopicCatalog:
        """Return the catalog without a deleted topic, after its files are removed."""
        return replace(
            self, deleted={key: topic for key, topic in self.deleted.items() if key != name}
        )

    def _with(self, topic: TopicConfig) -> TopicCatalog:
        return replace(self, topics={**self.topics, topic.name: topic})


def parse_catalog(value: dict[str, Any]) -> TopicCatalog:
    """Return the catalog of :func:`catalog_json`.

    Raises:
        ConfigError: it is none. UnknownVersionError: it is of a later version.
    """
    value = _FORM.content(value)
    ack: AckMode = check_ack(value.get("ackMode")) or "memory"
    topics, deleted = (
        {name: TopicConfig.from_json(entry, ack) for name, entry in table.items()}
        for table in (value["topicConfigTable"], value.get("deletedTopics", {}))
    )
    return TopicCatalog(topics, int(value["nextShardNumber"]), deleted, ack)


def catalog_json(catalog: TopicCatalog) -> dict[str, Any]:
    """Return a catalog in the form of RocketMQ's ``topics.json``, with keys that it ignores."""
    content = {
        "topicConfigTable": {name: topic.to_json() for name, topic in catalog.topics.items()},
        "nextShardNumber": catalog.next_shard_number,
        "ackMode": catalog.ack,
        "deletedTopics": {name: topic.to_json() for name, topic in catalog.deleted.items()},
    }
    return _FORM.of(content)


def shard_of_host(
    topics: Mapping[str, TopicConfig], host: tuple[str, int]
) -> tuple[str, int] | None:
    """Return the (topic, queue id) whose messages have *host* in their offset ids, or None."""
    for topic in topics.values():
        if host in topic.store_hosts:
            return topic.name, topic.store_hosts.index(host)
    return None


def _bitmap_mode(mode: str) -> BitmapMode:
    if mode not in get_args(BitmapMode):
        raise ConfigError(f"bitmaps are {mode!r}; give auto, on or off")
    return cast("BitmapMode", mode)


def _store_host(number: int) -> tuple[str, int]:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", _SHARD_PORT
