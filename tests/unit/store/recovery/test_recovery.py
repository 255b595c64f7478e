from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.harness.mutations import damaged_json
from support.nodes.stores import SMALL, FakeClock, kill, message

from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.recovery import (
    PastRecovery,
    RecoveryReport,
    read_past_recovery,
    write_past_recovery,
)
from rocketray.store.recovery.replay import Hole

REPORT = RecoveryReport(
    was_clean=False,
    cause="it changed since it was closed",
    start_offset=1,
    end_offset=2,
    files_read=3,
    records_read=4,
    bytes_kept_aside=5,
    queue_entries_put=6,
    queue_entries_cut=7,
    keys_put=8,
    files_repaired=9,
    holes=(Hole(10, 11, "its magic code is wrong"),),
    elapsed_ms=12,
)


def recover(directory: Path, now_ms: int) -> RecoveryReport | None:
    with MessageStore(directory, SMALL, clock_ms=FakeClock(now_ms)) as store:
        return store.recovery


def test_the_last_recovery_is_kept_also_over_clean_stops(tmp_path: Path) -> None:
    store = MessageStore(tmp_path, SMALL, clock_ms=FakeClock())
    store.put([message(number) for number in range(5)], 0)
    assert read_past_recovery(tmp_path) is None
    kill(store)
    first = recover(tmp_path, 1_800_000_000_000)
    assert first is not None
    assert read_past_recovery(tmp_path) == PastRecovery(1_800_000_000_000, first)
    recover(tmp_path, 1_900_000_000_000)
    assert read_past_recovery(tmp_path) == PastRecovery(1_800_000_000_000, first)
    (tmp_path / "abort").touch()
    recover(tmp_path, 1_900_000_000_000)
    last = read_past_recovery(tmp_path)
    assert last is not None
    assert last.time_ms == 1_900_000_000_000


def test_a_report_comes_back_and_a_damaged_one_is_none_or_numbers(
    tmp_path: Path, rng: random.Random
) -> None:
    write_past_recovery(tmp_path, REPORT, 5, SYSTEM_FILES)
    assert read_past_recovery(tmp_path) == PastRecovery(5, REPORT)
    path = tmp_path / "recovered.json"
    content = path.read_bytes()
    for _ in range(300):
        path.write_bytes(damaged_json(content, rng))
        found = read_past_recovery(tmp_path)
        assert found is None or type(found.report.records_read) is int


def test_a_report_that_cannot_be_kept_is_said_and_nothing_else_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MessageStore(tmp_path, SMALL, clock_ms=FakeClock())
    store.put([message(1)], 0)
    kill(store)
    (tmp_path / "recovered.json").mkdir()
    assert recover(tmp_path, 1) is not None
    assert "the report of its recovery is not saved" in caplog.text
    assert read_past_recovery(tmp_path) is None
