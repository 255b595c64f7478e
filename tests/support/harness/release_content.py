"""What today's code reads in the directories of a release (release_corpus.py), as JSON.

A later release may read more, under further keys; what ``content.json`` of a release has, it reads
the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from support.nodes.stores import FakeClock

from rocketray.actors.cluster import queue_moves, registered_documents
from rocketray.actors.cluster.coordinator_settings import CoordinatorSettings
from rocketray.base.json_fields import json_fields
from rocketray.broker.backups.manifest import incomplete_disk
from rocketray.broker.backups.restore import restore
from rocketray.broker.disks.disk_register import saved_disks
from rocketray.broker.disks.joined_cluster import read_joined
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.named_filters.filter_book import parse_book
from rocketray.broker.topics.catalog import TopicCatalog, parse_catalog
from rocketray.errors import StoreError
from rocketray.filters.consumer_filter_data import read_filters
from rocketray.message import StoredMessage
from rocketray.messaging.consumers.local_offsets import LocalOffsets
from rocketray.queries.ranges.topic_choice import named
from rocketray.queries.spark import positions
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.files.paths import (
    broadcast_directory,
    filters_file,
    shard_directory,
    writers_directory,
)
from rocketray.runtime.files.restorations import restorations_of
from rocketray.runtime.register.documents import RegisterDocuments
from rocketray.runtime.register.file_register import FileRegister
from rocketray.services.admin.dead_letters import Journal, letter_boxes
from rocketray.services.staging.writer_ledger import WriterLedger, WriterState
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.recovery import read_past_recovery
from rocketray.store.recovery.scrub_progress import read_progress
from rocketray.testing import Broker, Clock
from rocketray.testing.clock import START_MS

_LATER_MS = START_MS + 10 * 60_000  # a moment after the last one of the corpus
_TOPICS = ("Trade", "Latest")


def read_content(root: Path) -> dict[str, Any]:
    """Open each of the directories, and return what is in them, in the form of JSON."""
    found = {
        "node": _node(root / "node"),
        "joined": _joined(root / "joined"),
        "register": _register(root / "register"),
        "backup": _backup(root),
        "incomplete": incomplete_disk(root / "incomplete"),
        "failed": _failed(root / "failed"),
        "checkpoint": _checkpoint(root / "checkpoint.json"),
    }
    return dict(json.loads(json.dumps(found)))


def _node(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "uuid": identity_of(data),
        "rules": json_fields(FilterRules.load(data)),
        "recovered": _recovered(data),
        "staged": [_writer(state) for state in WriterLedger(writers_directory(data))],
        "restorations": restorations_of(shard_directory(data, "Trade", 1)),
        "scrubbed": asdict(read_progress(SYSTEM_FILES, shard_directory(data, "Trade", 1))),
        "filters": {
            str(directory.relative_to(data)): _filters(directory)
            for directory in (data, shard_directory(data, "Trade", 0))
        },
    }
    with Broker(data, clock=Clock(_LATER_MS)) as broker:
        found |= {
            "topics": _topics(broker.node.state.topics.catalog),
            "messages": {topic: list(map(_message, broker.stored(topic))) for topic in _TOPICS},
            "by key": {
                key: [_place(each) for each in broker.messages.query("Trade", key)]
                for key in ("Key0", "Key5", "Late")
            },
            "groups": _groups(broker),
            "named filters": [each.to_json() for each in broker.named_filters.all("Trade")],
            "transactions": _transactions(broker),
            "letters": _letters(broker),
            "broadcast": _broadcast(broker),
            "explained": _explained(broker),
        }
        before = broker.clock()
        broker.clock.advance(hours=1)
        later = (each for each in broker.stored("Trade") if each.store_timestamp_ms > before)
        found["delivered in an hour"] = list(map(_message, later))
    return found


def _topics(catalog: TopicCatalog) -> dict[str, Any]:
    return {
        name: {
            "queues": topic.queues,
            "retention": asdict(topic.retention),
            "bitmaps": topic.bitmaps,
            "writable": topic.writable,
            "hosts": topic.store_hosts,
            "processes": topic.processes,
            "made": sorted(topic.made),
        }
        for name, topic in catalog.topics.items()
    }


def _message(stored: StoredMessage) -> list[Any]:
    body = bytes(stored.body[:20]).decode()
    return [*_place(stored), body, stored.tags, stored.keys, stored.properties.get("amount")]


def _place(stored: StoredMessage) -> list[Any]:
    return [stored.queue_id, stored.queue_offset, stored.offset_message_id]


def _groups(broker: Broker) -> dict[str, Any]:
    return {
        f"{each.group} of {each.topic}": {
            "subscription": each.subscription.to_json(),
            "offsets": each.offsets,
            "starts": each.starts,
            "members": each.members,
            "told": {
                name: [client.release, client.machine, client.joined_ms]
                for name, client in each.clients.items()
            },
            "broadcast": each.is_broadcast,
            "changes to": None if each.plan is None else each.plan.new.to_json(),
            "moves": sorted(broker.node.state.registry.moves.waiting(each.group, each.topic)),
        }
        for each in broker.groups.all()
    }


def _transactions(broker: Broker) -> dict[str, Any]:
    broker.clock.advance(seconds=1)
    overview = broker.transactions.overview(10)
    return {"undecided": [[each.group, each.queue_offset] for each in overview.halves]}


def _letters(broker: Broker) -> dict[str, Any]:
    topic = "%DLQ%Filtered"
    journal = Journal(broker.data, broker.topics.get(topic))
    boxes = [[box.group, box.letters, box.redriven] for box in letter_boxes(broker.node)]
    return {"boxes": boxes, "redriven": sorted(journal.done), "target": journal.target}


def _broadcast(broker: Broker) -> list[int]:
    directory = broadcast_directory(broker.data)
    offsets = LocalOffsets(directory, "One", "Broadcast", "Trade", broker.clock)
    try:
        return [offsets.get(queue) for queue in range(2)]
    finally:
        offsets.close()


def _explained(broker: Broker) -> dict[str, str]:
    keys = [f"Key{number}" for number in range(6)]
    return {key: broker.explain(key, "Filtered", "Trade").cause.value for key in keys}


def _filters(directory: Path) -> dict[str, Any]:
    found = read_filters(filters_file(directory))
    return {
        f"{group} of {topic}": [each.subscription.expression, each.bit_positions, each.born_time_ms]
        for topic, groups in found.items()
        for group, each in groups.items()
    }


def _recovered(data: Path) -> dict[str, Any]:
    found = read_past_recovery(shard_directory(data, "Trade", 1))
    assert found is not None
    return asdict(found)


def _writer(state: WriterState) -> dict[str, Any]:
    decided = [
        {"batch": batch.number, "messages": [fragment.messages for fragment in batch.fragments]}
        for batch in state.decided
    ]
    return {**asdict(state), "decided": decided}


def _joined(data: Path) -> dict[str, Any]:
    joined = read_joined(data)
    assert joined is not None
    return {**asdict(joined), "topics": sorted(TopicCatalog.load(data).topics)}


def _register(data: Path) -> dict[str, Any]:
    register = RegisterDocuments(FileRegister(data / "keys"))
    used = registered_documents._used(data)
    settings = CoordinatorSettings.load(register)
    topics = register.load("topics", parse_catalog)
    assert used is not None
    assert settings is not None
    assert topics is not None
    return {
        "used": [used.is_complete, used.start_id],
        "settings": [settings.home.uuid, settings.shard_sizes, settings.queues_per_process],
        "topics": sorted(topics.topics),
        "groups": sorted(register.load("groups", dict) or ()),
        "documents": {
            name: _documents(documents)
            for name, documents in (("keys", register), ("copies", FileDocuments(data)))
        },
    }


def _documents(documents: RegisterDocuments | FileDocuments) -> dict[str, Any]:
    disks = saved_disks(documents)
    assert disks is not None
    moves = documents.load("moves", queue_moves._parsed)
    book = documents.load("namedFilters", parse_book)
    return {
        "cluster": [disks.cluster, disks.cluster_id],
        "disks": {name: home.data for name, home in disks.joined.items()},
        "draining": sorted(disks.draining),
        "moves": {name: asdict(move) for name, move in (moves or {}).items()},
        "named filters": []
        if book is None
        else [each.to_json() for each in book.topics["Trade"].latest()],
    }


def _backup(root: Path) -> dict[str, Any]:
    _, manifest = restore(root / "backup", root / "restored", clock_ms=FakeClock())
    with Broker(root / "restored", clock=Clock(_LATER_MS)) as broker:
        messages = len(broker.stored("Trade"))
    return {"disk": manifest.disk, "queues": dict(manifest.queues), "messages": messages}


def _failed(directory: Path) -> str:
    try:
        MessageStore(directory, clock_ms=FakeClock()).close()
    except StoreError as error:
        return str(error).replace(str(directory), "failed")
    return "opened"


def _checkpoint(path: Path) -> Any:
    return positions.to_json(positions.from_json(json.loads(path.read_text()), named("Trade")))
