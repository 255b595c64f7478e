from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from support.nodes.stores import SMALL, FakeClock, message

from rocketray.errors import ConfigError, StoreLockedError, StoreVersionError
from rocketray.store.files.store_settings import upgrade_store
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store as the first version described it: without the fields that came later."""
    directory = tmp_path / "store"
    with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
        store.put([message(1)], 0)
    path = directory / "store.json"
    value = orjson.loads(path.read_bytes()) | {"version": 1}
    for name in ("consume_queue_ext", "consume_queue_ext_segment_bytes", "append_properties_crc"):
        del value[name]
    path.write_bytes(orjson.dumps(value))
    return directory


def reopen(directory: Path, *, read_only: bool = False) -> MessageStore:
    return MessageStore(directory, read_only=read_only, clock_ms=FakeClock())


def test_an_older_store_is_read_and_not_written(old: Path) -> None:
    before = (old / "store.json").read_bytes()
    with reopen(old, read_only=True) as store:
        assert [each.body for each in store.reads.scan()] == [message(1).body]
    with QueueReader(old, "Trade", 0) as reader:
        assert reader.bodies(reader.entries(0, 1)) == [message(1).body]
    with pytest.raises(StoreVersionError, match=r"version is 1.*rocketray store upgrade"):
        reopen(old)
    assert (old / "store.json").read_bytes() == before


def test_an_upgrade_that_is_asked_for_lets_it_be_written(old: Path) -> None:
    assert upgrade_store(old) == 1
    with reopen(old) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert store.put([message(2)], 0)[0].queue_offset == 1
    assert upgrade_store(old) == 2


def test_a_store_that_is_open_is_not_upgraded(old: Path) -> None:
    upgrade_store(old)
    with reopen(old), pytest.raises(StoreLockedError):
        upgrade_store(old)


def test_what_is_newer_or_no_store_of_ours_is_left_alone(old: Path, tmp_path: Path) -> None:
    (old / "store.json").write_bytes(b'{"version": 3}')
    with pytest.raises(StoreVersionError, match="its version is 3"):
        upgrade_store(old)
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="not a store of rocketray"):
        upgrade_store(tmp_path / "other")
