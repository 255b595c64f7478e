from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rocketray.cli.terminal.progress import ProgressDisplay
from rocketray_demo.run import stderr_in_file


def test_only_the_progress_is_seen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_in_file(tmp_path / "log") as stream, ProgressDisplay(stream) as progress:
        subprocess.run(["sh", "-c", "echo a warning >&2"], check=True)
        progress.say("a step")
    subprocess.run(["sh", "-c", "echo afterwards >&2"], check=True)
    seen = capfd.readouterr().err
    assert "a step\n" in seen
    assert seen.endswith("afterwards\n")
    assert "a warning" not in seen
    assert (tmp_path / "log").read_text() == "a warning\n"
