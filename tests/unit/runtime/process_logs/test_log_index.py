"""The list of the processes that log on a data directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketray.runtime.files.paths import log_index_file
from rocketray.runtime.process_logs import log_index
from rocketray.runtime.process_logs.log_index import LogEntry, drop_lost_logs, note_log, read_logs


def entry(part: str, *files: str, pid: int = 7) -> LogEntry:
    return LogEntry(part, "vm", pid, 1_790_000_000_000, files)


def test_entries_are_kept_in_their_order_and_only_for_this_user(tmp_path: Path) -> None:
    assert read_logs(tmp_path) == []
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda pid: note_log(tmp_path, entry("filter", "f", pid=pid)), range(40)))
    assert {each.pid for each in read_logs(tmp_path)} == set(range(40))
    assert log_index_file(tmp_path).stat().st_mode & 0o077 == 0


def test_a_data_directory_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        note_log(tmp_path / "data", entry("filter", "f"))
    assert not (tmp_path / "data").exists()


def test_a_damaged_line_costs_its_own_entry(tmp_path: Path) -> None:
    note_log(tmp_path, entry("filter", "f"))
    with log_index_file(tmp_path).open("ab") as file:
        file.write(b'{"part": "gateway"}\n\xff\n[]\n{"part": "x", "files": 3}\nhalf')
        file.write(b"\n")
    note_log(tmp_path, entry("coordinator", "c"))
    assert [each.part for each in read_logs(tmp_path)] == ["filter", "coordinator"]


def test_a_start_drops_what_has_no_file_and_what_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "_KEPT", 2)
    there = tmp_path / "there"
    there.touch()
    note_log(tmp_path, entry("filter", str(tmp_path / "gone")))
    for pid in range(3):
        note_log(tmp_path, entry("gateway", str(tmp_path / "gone"), str(there), pid=pid))
    drop_lost_logs(tmp_path)
    assert [(each.part, each.pid) for each in read_logs(tmp_path)] == [
        ("gateway", 1),
        ("gateway", 2),
    ]


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ("node", {"filter", "shards:Trade", "gateway@0b", "node"}),
        ("shards", {"shards:Trade"}),
        ("gateway", {"gateway@0b"}),
        ("shop", {"app:shop", "app:shop:0", "app:shop:sinks"}),
        ("shop:0", {"app:shop:0"}),
        ("app:shop:0", {"app:shop:0"}),
        ("sho", set()),
    ],
)
def test_a_name_means_a_part_an_app_or_the_node(wanted: str, named: set[str]) -> None:
    parts = ("filter", "shards:Trade", "gateway@0b", "node", "app:shop", "app:shop:0")
    entries = [entry(part) for part in (*parts, "app:shop:sinks", "app:shopping:0")]
    assert {each.part for each in entries if each.is_named(wanted)} == named
