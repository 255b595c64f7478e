"""Keys are found by the hash that RocketMQ gives them, whatever bytes were stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.models.records import RawRecord
from support.nodes.stores import FakeClock

from rocketray.base.config import StoreConfig
from rocketray.hashing import index_key_hash
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.store_reads import _key_hash


@pytest.mark.parametrize("key", ["", "k", "é😀", "\ufffd", "a\ude00b"])
def test_the_quick_hash_is_that_of_the_index(key: str) -> None:
    assert _key_hash("T", key) == index_key_hash(f"T#{key}")


def test_a_key_that_is_no_utf8_is_found_after_a_recovery_by_what_is_read_of_it(
    tmp_path: Path,
) -> None:
    log = bytearray()
    for raw in (b"\xff", b"a\xed\xa0\x80", b"\xe4\xb8", b"whole"):
        log += RawRecord(properties=b"KEYS\x01%b\x02" % raw, physical_offset=len(log)).encode()
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log.ljust(4096, b"\0"))
    config = StoreConfig(commit_log_segment_bytes=4096, index_hash_slots=10, index_entries=100)
    with MessageStore(tmp_path, config, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        messages = list(store.reads.scan())
        assert [one.keys for one in messages] == [["\ufffd"], ["a\ufffd"], ["\ufffd"], ["whole"]]
        for key, count in (("\ufffd", 2), ("a\ufffd", 1), ("whole", 1)):
            found = store.reads.query("TopicTest", key, 9, 0, 2**62)
            assert [one.keys for one in found] == [[key]] * count
