"""Queues read by position: in batches, never beyond what may be seen, and woken by what comes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.broker.topics.log_reader import LogReader
from rocketray.message import StoredMessage
from rocketray.store.retention import RetentionPolicy


def bodies(found: dict[tuple[str, int], list[StoredMessage]]) -> list[bytes]:
    return [message.body for messages in found.values() for message in messages]


def test_queues_are_read_from_any_position_in_batches(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("T", 1)
        put(node, "T", numbers(50))
        reader = LogReader(tmp_path)
        queue = ("T", 0)
        assert reader.bounds(queue) == (0, 50)
        assert bodies(reader.read({queue: 0}, 10, 0)) == numbers(10)
        assert bodies(reader.read({queue: 45}, 10, 0)) == numbers(5, first=45)
        assert bodies(reader.read({queue: 7}, 2, 0)) == numbers(2, first=7)
        assert reader.read({queue: 50}, 10, 0.02) == {}
        assert reader.read({queue: 99}, 10, 0) == {}
        reader.close()


def test_a_read_waits_for_the_next_message_or_until_it_is_interrupted(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("T", 2)
        reader = LogReader(tmp_path)
        positions = {("T", 0): 0, ("T", 1): 0}
        later = threading.Timer(0.05, put, (node, "T", [b"late"]))
        later.start()
        assert bodies(reader.read(positions, 10, 3600)) == [b"late"]
        later.join()
        interrupting = threading.Timer(0.05, reader.interrupt)
        interrupting.start()
        assert reader.read({("T", 0): 9, ("T", 1): 9}, 10, 3600) == {}
        interrupting.join()
        reader.interrupt()  # as positions change between two reads: it would wait with old ones
        assert reader.read({("T", 0): 9, ("T", 1): 9}, 10, 3600) == {}
        put(node, "T", [b"next"])
        assert bodies(reader.read({("T", 0): 0, ("T", 1): 0}, 10, 60)) == [b"late", b"next"]
        reader.close()


def test_where_messages_were_deleted_a_read_begins_at_the_first_that_is_there(
    tmp_path: Path,
) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("T", 1, retention=RetentionPolicy(max_bytes=1))
        reader = LogReader(tmp_path)
        for _ in range(3):
            put(node, "T", [b"x" * 10_000] * 90)
        assert len(reader.read({("T", 0): 0}, 1000, 0)["T", 0]) == 270
        node.expire()
        minimum, visible = reader.bounds(("T", 0))
        assert 0 < minimum < visible
        first = reader.read({("T", 0): 0}, 1, 0)["T", 0][0]
        assert first.queue_offset == minimum
        reader.close()


def test_a_read_of_large_messages_takes_fewer_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.broker.topics.log_reader._READ_MAX_BYTES", 2500)
    with LocalNode(tmp_path) as node:
        node.topics.ensure("T", 1)
        put(node, "T", [b"x" * 1000] * 3 + [b"y" * 5000])
        reader = LogReader(tmp_path)
        assert len(reader.read({("T", 0): 0}, 10, 0)["T", 0]) == 2
        assert len(reader.read({("T", 0): 2}, 10, 0)["T", 0]) == 1
        assert bodies(reader.read({("T", 0): 3}, 10, 0)) == [b"y" * 5000]
        reader.close()


def test_a_queue_that_never_ran_is_not_found(tmp_path: Path) -> None:
    with LocalNode(tmp_path):
        reader = LogReader(tmp_path)
        with pytest.raises(FileNotFoundError):
            reader.bounds(("Nobody", 0))
        reader.close()
