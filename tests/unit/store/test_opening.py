"""Who may open a directory, and with what."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, SMALL, FakeClock, check_whole, message

from rocketray.base.config import StoreConfig
from rocketray.errors import (
    ConfigError,
    StoreError,
    StoreLockedError,
    StoreVersionError,
)
from rocketray.store.message_store import MessageStore

pytestmark = pytest.mark.proves("durability", "A second process on one store is refused")


def open_store(directory: Path, config: StoreConfig | None = None) -> MessageStore:
    return MessageStore(directory, config, clock_ms=FakeClock())


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_read_only_store_is_not_written(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put([message(0)], 0)
        store.flush()
        with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as reader:
            assert check_whole(reader) == 1  # beside its writer
            with pytest.raises(StoreError, match="open it for writing"):
                reader.put([message(1)], 0)
            assert reader.flush() == reader.reads.max_physical_offset


def test_a_crashed_store_opens_read_only_as_it_lies(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        placed = store.put([message(number) for number in range(8)], 0)
    (tmp_path / "abort").touch()
    log = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    raw[placed[6].physical_offset :] = bytes(len(raw) - placed[6].physical_offset)
    log.write_bytes(raw)
    before = content(tmp_path)
    with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as reader:
        assert [one.queue_offset for one in reader.reads.scan()] == list(range(6))
        assert reader.reads.max_queue_offset("Trade", 0) == 6
    assert content(tmp_path) == before


def test_one_writer_at_a_time_and_the_other_is_told_who(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL):
        with pytest.raises(StoreLockedError, match=f"open for writing by process {os.getpid()}"):
            open_store(tmp_path)
        program = (
            "import sys, pathlib\n"
            "from rocketray.errors import StoreLockedError\n"
            "from rocketray.store.files.lock import StoreLock\n"
            "try:\n    StoreLock(pathlib.Path(sys.argv[1]))\n"
            "except StoreLockedError as error:\n    sys.exit(str(error))\n"
        )
        other = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"{tmp_path} is open for writing by process {os.getpid()}" in other.stderr
    open_store(tmp_path).close()


def test_a_store_is_opened_with_what_it_was_made_with(tmp_path: Path) -> None:
    open_store(tmp_path, SMALL).close()
    with open_store(tmp_path) as store:
        assert store.config == SMALL
    with pytest.raises(ConfigError, match=r"created with index_entries=9 .* with 10"):
        open_store(tmp_path, replace(SMALL, index_entries=10))
    other_pace = replace(SMALL, flush_interval_ms=7, append_properties_crc=False)
    with open_store(tmp_path, other_pace) as store:
        assert store.config == other_pace


def test_a_newer_or_damaged_description_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path, SMALL).close()
    path = tmp_path / "store.json"
    good = path.read_text().rstrip()
    path.write_text(good.replace('"version": 2', '"version": 3'))
    with pytest.raises(StoreVersionError, match="its version is 3"):
        open_store(tmp_path)
    for bad in ("", "[]", "{}", '{"version": 2, "what": 2}', good.replace("4096", '"x"')):
        path.write_text(bad)
        path.with_name("store.json.bak").write_text(bad)
        with pytest.raises(StoreError, match="has no valid store settings"):
            open_store(tmp_path)
    path.write_text(good)
    with open_store(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean  # a refusal is no crash


def test_rocketmqs_own_directory_is_only_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a StoreConfig"):
        MessageStore(GOLDEN_STORE, read_only=True, clock_ms=FakeClock())
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()
    with pytest.raises(ConfigError, match="RocketMQ wrote it, or the file and its copy"):
        open_store(tmp_path, GOLDEN_CONFIG)
    with pytest.raises(ConfigError, match="does not exist"):
        MessageStore(tmp_path / "none", read_only=True, clock_ms=FakeClock())


def test_a_last_entry_of_a_false_size_is_not_taken_for_the_end_of_the_log(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.put([message(number) for number in range(3)], 0)
        end = store.reads.max_physical_offset
    queue = tmp_path / "consumequeue" / "Trade" / "0" / f"{0:020d}"
    content = bytearray(queue.read_bytes())
    content[48:52] = (15_007_744).to_bytes(4, "big")  # the size of the third
    queue.write_bytes(content)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert again.reads.max_physical_offset == end
        again.put([message(3)], 0)
        assert check_whole(again) == 4


@pytest.mark.parametrize("name", ["checkpoint", "lock", "store.json", f"commitlog/{0:020d}"])
def test_a_directory_in_a_files_place_is_said(tmp_path: Path, name: str) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.put([message(1)], 0)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(StoreError, match="is a directory, and should be a file"):
        MessageStore(tmp_path, clock_ms=FakeClock())
