"""Readers of another process's queue: tags codes come from where the entries' addresses lead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, SMALL, FakeClock, message, read_jsonl

from rocketray.hashing import tags_code
from rocketray.store.message_store import MessageStore
from rocketray.store.queues.ext_reader import ExtReader
from rocketray.store.reading.reader import QueueReader

ROWS = [row for row in read_jsonl("store-v1.jsonl") if "blank" not in row]
QUEUES = sorted({(row["topic"], row["queueId"]) for row in ROWS})
CONFIG = replace(SMALL, consume_queue_ext=True, consume_queue_ext_segment_bytes=1024)
FIRST = -(1 << 63)


@pytest.mark.parametrize(("topic", "queue_id"), QUEUES)
def test_tags_match_as_in_a_queue_without_ext(topic: str, queue_id: int) -> None:
    rows = [row for row in ROWS if (row["topic"], row["queueId"]) == (topic, queue_id)]
    with QueueReader(GOLDEN_STORE, topic, queue_id, GOLDEN_CONFIG) as reader:
        entries = reader.entries(0, len(rows))
        assert entries.tags_codes.tolist() == [row["cq"]["tagsCode"] for row in rows]
        for tags in ({"TagA"}, {"Aa", "标签"}, {"a", "b", "c", "d", "BB", "😀"}):
            codes = np.array(sorted(map(tags_code, tags)), np.int32)
            found = reader.match_tags(3, len(rows) - 2, codes)
            wanted = [row for row in rows[3:-2] if tags_code(row["tags"]) in codes.tolist()]
            assert found.queue_offsets.tolist() == [row["queueOffset"] for row in wanted]
            assert found.tags_codes.tolist() == [row["cq"]["tagsCode"] for row in wanted]


def test_an_entry_whose_unit_cannot_be_read_passes(tmp_path: Path) -> None:
    with MessageStore(tmp_path, CONFIG, clock_ms=FakeClock()) as store:
        for number in range(20):
            store.put([message(number)], 0)
    path = tmp_path / "consumequeue_ext" / "Trade" / "0" / f"{0:020d}"
    path.write_bytes(bytes(100) + path.read_bytes()[100:])  # the first five units
    pay = np.array([tags_code("pay")], np.int32)
    with QueueReader(tmp_path, "Trade", 0) as reader:
        assert reader.match_tags(0, 20, pay).queue_offsets.tolist() == [0, 1, 2, 3, 4, 5, 9, 13, 17]
        path.unlink()
    with QueueReader(tmp_path, "Trade", 0) as reader:
        assert reader.match_tags(0, 20, pay).queue_offsets.tolist() == list(range(20))


def test_what_is_no_address_of_a_unit_stays(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(1024))
    fields = np.array(
        [0, -1, 2598919, -(1 << 31), -(1 << 31) - 1, FIRST, FIRST + 1010, FIRST + 1024], np.int64
    )
    codes = ExtReader(tmp_path, 1024)
    assert codes.resolve(fields).tolist() == fields.tolist()
    codes.close()
