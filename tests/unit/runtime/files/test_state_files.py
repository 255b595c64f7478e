"""Small files: what is half written goes, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.nodes.local_node import LocalNode

from rocketray.actors.cluster.system_services import SystemServices
from rocketray.base.file_form import FileForm
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.errors import StoreError
from rocketray.runtime.files import state_files
from rocketray.runtime.files.paths import (
    config_directory,
    producer_rings_directory,
    shard_directory,
)
from rocketray.runtime.files.state_files import (
    read_json,
    read_state,
    remove_half_written,
    repaired_files,
    write_json,
)
from rocketray.runtime.processes import owned_name
from rocketray.testing import node as testing_node

pytestmark = pytest.mark.proves(
    "durability",
    "A damaged file of the node's state is rebuilt from its copy, and each other row of that table",
)


@pytest.fixture(scope="module")
def dead() -> int:
    """A process id that nobody has any more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_what_a_dead_process_was_writing_is_removed(tmp_path: Path, dead: int) -> None:
    own = owned_name("").rstrip("-")
    kept = {"topics.json", f"topics.json.{own}.tmp", "note.tmp", f"{dead}.tmp", f"a.{dead}.tmp.bak"}
    gone = {f"topics.json.{dead}.tmp", "delayOffset.json.99999999999999999.tmp"}
    for name in kept | gone:
        (tmp_path / name).touch()
    remove_half_written(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept
    remove_half_written(tmp_path / "missing")


class _KilledError(BaseException):
    """The process ends here."""


def test_an_owner_makes_durable_what_its_predecessor_was_killed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure takes back a state that was acted on, as in seed 1298 of the simulator."""
    path, synced = tmp_path / "topics.json", list[Path]()

    def killed(_: Path) -> None:
        raise _KilledError

    monkeypatch.setattr(state_files, "sync_directory", killed)
    with pytest.raises(_KilledError):
        write_json(path, {"a": 1})
    monkeypatch.setattr(state_files, "sync_directory", synced.append)
    assert read_state(path, dict) == {"a": 1}
    assert not synced, "who only reads changes nothing"
    assert read_state(path, dict, owns=True) == {"a": 1}
    assert synced == [tmp_path]


@pytest.fixture
def config(data: Path) -> Path:
    """The directory of a node's state, with a catalogue in it."""
    TopicCatalog().save(data)
    return config_directory(data)


def test_system_services_remove_what_the_one_before_it_left(
    data: Path, config: Path, dead: int
) -> None:
    left = config / f"delayOffset.json.{dead}.tmp"
    left.touch()
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    SystemServices(process, lambda: pytest.fail("nothing is sent"), clock_ms=lambda: 0).close()
    process.close()
    assert not left.exists()


def test_a_coordinator_removes_what_the_one_before_it_left(
    data: Path, config: Path, dead: int
) -> None:
    left = config / f"topics.json.{dead}.tmp"
    left.touch()
    testing_node.LocalNode(data, {}, lambda: 0, FilterRules()).close()
    assert not left.exists()


def test_a_deleted_topic_leaves_neither_files_nor_rings(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("T", 2)
        node.topics.ensure("Other", 1)
        with node.producer() as producer:
            for queue_id in range(2):
                producer.send("T", b"x", queue_id=queue_id)
            producer.send("Other", b"x")
            node.topics.delete("T")
            assert not shard_directory(tmp_path, "T", 0).parent.exists()
            assert not producer_rings_directory(tmp_path, "T", 0).parent.exists()
            assert len([*producer_rings_directory(tmp_path, "Other", 0).iterdir()]) == 1
            node.topics.ensure("T", 2)
            assert producer.send("Other", b"x").queue_offset == 1
        assert not node.stored("T")


def number(value: dict[str, Any]) -> int:
    """What the tests below keep in a file: one number."""
    return int(value["number"])


DAMAGES = (b"", b"{", b"[1]", b"\0" * 20, b'{"number": "x"}', b'{"other": 1}')


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file of the state that was written twice."""
    path = tmp_path / "state.json"
    write_json(path, {"number": 1})
    write_json(path, {"number": 2})
    return path


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def test_the_copy_is_never_older_than_the_file(state: Path) -> None:
    assert beside(state, ".bak").read_bytes() == state.read_bytes()
    assert read_state(state, number) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_fixed_from_its_copy_and_told_until_somebody_looked(
    tmp_path: Path, state: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    state.write_bytes(damage)
    assert read_state(state, number) == 2
    assert state.read_bytes() == damage  # a reader changes nothing
    assert read_state(state, number, owns=True) == 2
    assert f"{beside(state, '.bak')} is used" in caplog.text
    assert read_json(state) == {"number": 2}
    assert beside(state, ".damaged").read_bytes() == damage
    for _ in range(2):
        [line] = repaired_files(tmp_path)
        assert line.startswith(f"{state}: it was damaged")
        assert line.endswith("remove that one")
        assert read_state(state, number, owns=True) == 2
    beside(state, ".damaged").unlink()
    assert repaired_files(tmp_path) == []


@pytest.mark.parametrize("copy", [None, *DAMAGES])
def test_where_both_are_damaged_both_are_named_and_neither_is_touched(
    state: Path, copy: bytes | None
) -> None:
    state.write_bytes(b"{")
    beside(state, ".bak").unlink()
    if copy is not None:
        beside(state, ".bak").write_bytes(copy)
    with pytest.raises(StoreError, match="restore the file from a backup") as raised:
        read_state(state, number, owns=True)
    assert str(state) in str(raised.value)
    assert f"{state}.bak" in str(raised.value)
    assert state.read_bytes() == b"{"
    assert not beside(state, ".damaged").exists()


def test_a_file_that_was_removed_does_not_come_back(state: Path) -> None:
    state.unlink()
    assert read_state(state, number, owns=True) is None
    assert not state.exists()


def test_a_removed_file_does_not_come_back_with_what_a_dead_process_left(
    state: Path, dead: int
) -> None:
    """The owner met the file whole after that, so no replacement of it is under way."""
    beside(state, f".{dead}.tmp").write_bytes(state.read_bytes())
    assert read_state(state, number, owns=True) == 2
    state.unlink()
    assert read_state(state, number, owns=True) is None


def test_a_file_that_was_being_replaced_comes_back_once(state: Path, dead: int) -> None:
    half = beside(state, f".{dead}.tmp")
    state.rename(half)  # as versions before this one replaced files
    remove_half_written(state.parent)
    assert half.exists()
    assert read_state(state, number) == 2
    assert not state.exists()
    assert read_state(state, number, owns=True) == 2
    assert read_json(state) == {"number": 2}
    state.unlink()
    assert read_state(state, number, owns=True) is None


def test_a_half_written_copy_is_no_sign_of_a_replacement(state: Path, dead: int) -> None:
    beside(state, f".bak.{dead}.tmp").touch()
    state.unlink()
    assert read_state(state, number) is None


def test_what_is_not_copied_leaves_no_older_copy(state: Path) -> None:
    write_json(state, {"number": 3}, backup=False)
    assert read_json(state) == {"number": 3}
    assert not beside(state, ".bak").exists()


@pytest.mark.parametrize("copy", [None, b'{"number": 1}', b'{"number": 3}', b"{"])
def test_the_owner_of_a_whole_file_makes_its_copy_the_same(state: Path, copy: bytes | None) -> None:
    """It is older where an earlier version wrote it, newer where a process died over the two."""
    beside(state, ".bak").unlink()
    if copy is not None:
        beside(state, ".bak").write_bytes(copy)
    assert read_state(state, number) == 2
    assert beside(state, ".bak").exists() is (copy is not None)
    assert read_state(state, number, owns=True) == 2
    assert beside(state, ".bak").read_bytes() == state.read_bytes()
    state.write_bytes(b"{")
    assert read_state(state, number, owns=True) == 2


def test_a_copy_that_cannot_be_written_keeps_nobody_waiting(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside(state, ".bak").write_bytes(b"{")
    in_the_way = beside(state, f".bak.{os.getpid()}.tmp")
    in_the_way.mkdir()
    assert read_state(state, number, owns=True) == 2
    assert "the copy of state.json, is not updated yet" in caplog.text


def test_a_file_whose_version_is_no_number_is_damaged(state: Path) -> None:
    state.write_text('{"version": "1"}')
    with pytest.raises(StoreError, match=r"is damaged \(version is '1'\); restore it from a copy"):
        read_json(state, FileForm("state.json"))


def test_more_than_can_be_read_again_is_not_written(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "JSON_MAX_BYTES", 100)
    with pytest.raises(StoreError, match="so it was not changed"):
        write_json(state, {"number": "9" * 100})
    assert read_state(state, number, owns=True) == 2
    assert sorted(path.name for path in state.parent.iterdir()) == ["state.json", "state.json.bak"]
