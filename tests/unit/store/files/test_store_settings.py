from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.nodes.stores import SMALL, FakeClock, message

from rocketray.errors import (
    ConfigError,
    StoreError,
    StoreLockedError,
    StoreVersionError,
    StreamError,
)
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.store_settings import (
    SETTINGS_FILES,
    Salvage,
    allow_units,
    read_settings,
    remove_store,
    upgrade_store,
)
from rocketray.store.importing.foreign import read_foreign_settings
from rocketray.store.importing.import_source import ImportSource
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader

pytestmark = pytest.mark.proves(
    "durability",
    "A lost or damaged `store.json` is repaired from its copy; a store that lost both is "
    "refused, and can be imported",
)


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


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A store with a few messages, closed."""
    directory = tmp_path / "shard"
    with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
        store.put([message(number) for number in range(3)], 0)
    return directory


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    path.unlink()
    if how != "lost":
        path.write_bytes({"torn": raw[:40], "empty": b"", "zeros": bytes(len(raw))}[how])


DAMAGES = ["lost", "torn", "empty", "zeros"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_store_is_read_by_the_copy_of_its_settings_and_an_opening_repairs_them(
    shard: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    settings, copy = shard / "store.json", shard / "store.json.bak"
    raw = settings.read_bytes()
    assert copy.read_bytes() == raw
    damage(settings, how)
    before = content(shard)
    with reopen(shard, read_only=True) as store:
        assert store.config == SMALL
        (problem,) = store.verify().problems
        assert problem.file == str(settings)
    assert content(shard) == before
    assert f"{settings}: {'missing' if how == 'lost' else 'damaged'}" in caplog.text
    with reopen(shard) as store:
        assert store.config == SMALL
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert store.verify().problems == ()
    assert settings.read_bytes() == copy.read_bytes() == raw
    assert (shard / "store.json.damaged").exists() == (how != "lost")


@pytest.mark.proves("durability", "A bit of `store.json` that has changed is damage")
def test_each_byte_that_has_changed_leaves_the_settings_as_they_are(shard: Path) -> None:
    settings, copy = shard / "store.json", shard / "store.json.bak"
    raw = settings.read_bytes()
    for at in range(len(raw)):
        for changed in (raw[at] ^ 1, raw[at] ^ 4, raw[at] ^ 0x80, ord(" ")):
            settings.write_bytes(raw[:at] + bytes([changed]) + raw[at + 1 :])
            assert read_settings(shard) == SMALL, f"byte {at} is {changed:#x}"
    for name in (settings, copy):
        name.write_bytes(raw.replace(b'"index_entries": ', b'"index_entries": 1'))
    with pytest.raises(StoreError, match="it has another checksum; after an edit by hand"):
        read_settings(shard)


def test_settings_without_a_checksum_are_read(shard: Path) -> None:
    """As earlier releases wrote them."""
    for name in SETTINGS_FILES:
        text = (shard / name).read_bytes().rstrip()
        assert orjson.loads((shard / name).read_bytes()) == orjson.loads(text)
        (shard / name).write_bytes(text)
    assert read_settings(shard) == SMALL
    reopen(shard).close()


class BadSector(FileSystem):
    """A disk that cannot read ``store.json``."""

    def read(self, path: Path, at_most: int) -> bytes:
        if path.name == "store.json":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().read(path, at_most)


def test_settings_on_a_bad_sector_are_those_of_the_copy(shard: Path) -> None:
    assert read_settings(shard, BadSector()) == SMALL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"store_host": ["127.0.0.1", "10911"]}, "store_host: '10911' is not of type int"),
        ({"store_host": None}, "store_host: None is not of type list"),
        ({"surprise": 1}, "it has the unknown setting 'surprise'"),
        ({"index_entries": 0}, "index_entries is 0"),
    ],
)
def test_what_is_wrong_with_settings_is_named(
    shard: Path, change: dict[str, object], reason: str
) -> None:
    value = orjson.loads((shard / "store.json").read_bytes()) | change
    for name in SETTINGS_FILES:
        (shard / name).write_bytes(orjson.dumps(value))
    with pytest.raises(StoreError, match=reason):
        read_settings(shard)


@pytest.mark.parametrize("how", DAMAGES)
def test_an_opening_for_writing_renews_the_copy(shard: Path, how: str) -> None:
    """As of the release before, which wrote none, and of a power failure, which may take it."""
    raw = (shard / "store.json").read_bytes()
    damage(shard / "store.json.bak", how)
    with reopen(shard, read_only=True) as store:
        assert store.verify().problems == ()
    assert not is_same(shard)
    reopen(shard).close()
    assert is_same(shard)
    assert (shard / "store.json").read_bytes() == raw


def is_same(directory: Path) -> bool:
    copy = directory / "store.json.bak"
    return copy.exists() and copy.read_bytes() == (directory / "store.json").read_bytes()


def test_a_change_of_the_settings_is_in_the_copy(shard: Path) -> None:
    assert allow_units(shard, SMALL, SYSTEM_FILES).consume_queue_ext
    assert is_same(shard)
    assert b'"consume_queue_ext": true' in (shard / "store.json.bak").read_bytes()


def test_a_copy_that_cannot_be_written_keeps_no_store_closed(
    shard: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (shard / "store.json.bak").unlink()
    (shard / "store.json.bak.tmp").mkdir()
    reopen(shard).close()
    assert f"{shard / 'store.json.bak'} is not updated yet" in caplog.text


@pytest.mark.parametrize("how", [None, *DAMAGES])
def test_settings_of_a_newer_release_are_not_replaced(shard: Path, how: str | None) -> None:
    for name in ("store.json", "store.json.bak"):
        text = (shard / name).read_bytes().rstrip()
        (shard / name).write_bytes(text.replace(b'"version": 2', b'"version": 3'))
    if how is not None:
        damage(shard / "store.json", how)
    before = content(shard)
    with pytest.raises(StoreVersionError, match=r"store\.json.*: its version is 3"):
        reopen(shard)
    assert content(shard) == before


def test_a_removal_that_is_cut_short_leaves_the_settings_to_the_end(
    shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy without its file may be empty after a power failure: then nothing says whose it is."""
    left: list[set[str]] = []
    for name in ("unlink", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, _noting(getattr(os, name), shard, left))
    remove_store(shard)
    assert not shard.exists()
    file, copy = SETTINGS_FILES
    # before the sync and the removal of the copy, before those of the file, before the directory's
    assert left[-5:] == [{file, copy}, {file, copy}, {file}, {file}, set()]
    assert all({file, copy} < names for names in left[:-5])


def _noting(call: Callable[..., Any], directory: Path, left: list[set[str]]) -> Callable[..., Any]:
    def noted(*arguments: Any, **options: Any) -> Any:
        if directory.exists():
            left.append({path.name for path in directory.iterdir()})
        return call(*arguments, **options)

    return noted


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("of_copy", DAMAGES)
def test_a_store_without_settings_is_refused_and_its_messages_can_be_imported(
    shard: Path, how: str, of_copy: str
) -> None:
    damage(shard / "store.json", how)
    damage(shard / "store.json.bak", of_copy)
    before = content(shard)
    for salvage in (Salvage.NOTHING, Salvage.ALL):
        with pytest.raises(StreamError, match=f"rocketray store import {shard} --all") as refused:
            MessageStore(shard, SMALL, salvage=salvage, clock_ms=FakeClock())
        assert "copy store.json there from a backup" in str(refused.value)
        assert str(shard) in str(refused.value)
    assert content(shard) == before
    with pytest.raises(StreamError, match=f"rocketray store import {shard} --all"):
        reopen(shard, read_only=True)
    for name in ("store.json", "store.json.bak"):  # as the error advises
        (shard / name).unlink(missing_ok=True)
    config = read_foreign_settings(shard, index_hash_slots=SMALL.index_hash_slots).config
    with ImportSource(shard, config, clock_ms=FakeClock()) as source:
        assert len(list(source.records(0))) == 3
