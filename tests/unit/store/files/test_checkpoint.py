from __future__ import annotations

from pathlib import Path

from support.nodes.stores import GOLDEN_STORE

from rocketray.store.files.checkpoint import Checkpoint, read_checkpoint, write_checkpoint


def test_the_checkpoint_that_rocketmq_wrote(tmp_path: Path) -> None:
    found = read_checkpoint(GOLDEN_STORE / "checkpoint")
    assert found == Checkpoint(0x1A1FC1D062E, 0x1A1FC1D062E, 0x1A1FC1D012F)
    write_checkpoint(tmp_path / "checkpoint", found)
    written = (tmp_path / "checkpoint").read_bytes()
    assert written == (GOLDEN_STORE / "checkpoint").read_bytes()


def test_a_missing_or_short_one_vouches_for_nothing(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "checkpoint") == Checkpoint(0, 0, 0)
    (tmp_path / "checkpoint").write_bytes(b"\1" * 39)
    assert read_checkpoint(tmp_path / "checkpoint").trusted_until_ms() == 0


def test_the_older_of_log_and_queue_counts_less_three_seconds() -> None:
    assert Checkpoint(10_000, 9000, 1).trusted_until_ms() == 6000
    assert Checkpoint(10_000, 2000, 1).trusted_until_ms() == 0
