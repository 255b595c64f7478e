"""What the shell proposes: names from the files of a data directory, and nothing where they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.machine import require
from support.harness.patience import patience

from rocketray.cli.arguments.completions import (
    complete_apps,
    complete_groups,
    complete_logs,
    complete_tables,
    complete_topics,
    completed_words,
)
from rocketray.runtime.process_logs.log_index import LogEntry, note_log

BASH = """
set -e
eval "$(_ROCKETRAY_COMPLETE=source_bash rocketray)"
COMP_WORDS=({words})
COMP_CWORD={at}
_rocketray_completion rocketray
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    config = tmp_path / "config"
    config.mkdir()
    topics = dict.fromkeys(("Orders", "Others", "Trade", "%RETRY%audit"))
    topics |= {"shop-totals-changelog": None}
    groups = dict.fromkeys(("audit", "shop-charge"))
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "groups.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    for part in ("filter", "app:shop:0", "app:shop:sinks", "app:kiosk"):
        note_log(tmp_path, LogEntry(part, "vm", 1, 0, ()))
    return tmp_path


def at(data: Path | None) -> Any:
    """What a completion uses of click's context."""
    return SimpleNamespace(params={"data": data})


def test_names_that_begin_with_what_is_written(data: Path) -> None:
    assert complete_topics(at(data), "O") == ["Orders", "Others"]
    assert complete_topics(at(data), "") == ["Orders", "Others", "Trade", "shop-totals-changelog"]
    assert complete_topics(at(data), "%") == ["%RETRY%audit"]
    assert complete_groups(at(data), "") == ["audit", "shop-charge"]
    assert complete_tables(at(data), "sh") == ["shop-totals"]
    assert complete_apps(at(data), "") == ["kiosk", "shop"]
    assert complete_logs(at(data), "s") == ["shop", "shop:0", "shop:sinks"]
    assert "node" in complete_logs(at(data), "")


def test_the_directory_of_the_environment_is_the_default(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", str(data))
    assert complete_topics(at(None), "T") == ["Trade"]


@pytest.mark.parametrize("text", ["{", "[]", '{"other": 1}', '{"topicConfigTable": 5}', None])
def test_a_file_that_cannot_be_read_proposes_nothing(data: Path, text: str | None) -> None:
    file = data / "config" / "topics.json"
    file.unlink() if text is None else file.write_text(text)
    assert complete_topics(at(data), "") == []


def test_the_words_of_each_shell() -> None:
    assert completed_words({"COMP_WORDS": "rocketray topics des"}) == ["topics", "des"]
    assert completed_words({"_TYPER_COMPLETE_ARGS": "rocketray status "}) == ["status"]
    assert completed_words({}) == []


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["topics", "describe", "O"], ["Orders", "Others"]),
        (["topi"], ["topics"]),
        (["groups", "progress", ""], ["audit", "shop-charge"]),
    ],
    ids=" ".join,
)
def test_a_real_shell_completes_commands_and_names(
    data: Path, words: list[str], proposed: list[str]
) -> None:
    require("bash")
    quoted = " ".join(f"'{word}'" for word in ("rocketray", *words))
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", BASH.format(words=quoted, at=len(words))],
        env=dict(os.environ) | {"ROCKETRAY_DATA": str(data), "PATH": scripts},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    )
    assert done.stdout.split() == proposed
