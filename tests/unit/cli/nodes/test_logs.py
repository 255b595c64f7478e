"""``rocketray logs``: which files are read, in which order, and what is said of the others."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.harness.patience import wait_until

from rocketray.cli.nodes import logs as command
from rocketray.cli.terminal import output
from rocketray.runtime.process_logs.log_index import LogEntry, note_log

HEAD = "2025-11-27 10:00:0"
ENDED = 2**31 - 1


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with the logs of an app's host, of the filter, and of a host elsewhere."""
    texts = {
        "app:shop:0": f"{HEAD}1,000 PRINT charge [Orders queue 0 offset 7 id A]: paid\n"
        f"{HEAD}3,000 ERROR x: failed\nTraceback\n",
        "filter": f"{HEAD}2,000 INFO y: scanned\n",
    }
    for part, text in texts.items():
        file = tmp_path / f"{part}.log"
        file.write_text(text)
        note_log(tmp_path, LogEntry(part, socket.gethostname(), os.getpid(), 0, (str(file),)))
    gone = str(tmp_path / "gone")
    note_log(tmp_path, LogEntry("gateway", socket.gethostname(), ENDED, 0, (gone,)))
    note_log(tmp_path, LogEntry("app:shop:1", "elsewhere", 5, 0, ("/logs/there",)))
    return tmp_path


def test_all_lines_in_order_behind_the_names_of_their_parts(data: Path) -> None:
    done = run_here("logs", "--data", data)
    assert done.code == 0
    assert done.out.splitlines() == [
        f"shop:0  │ {HEAD}1,000 PRINT charge [Orders queue 0 offset 7 id A]: paid",
        f"filter  │ {HEAD}2,000 INFO y: scanned",
        f"shop:0  │ {HEAD}3,000 ERROR x: failed",
        "shop:0  │ Traceback",
    ]
    assert "shop:1: its log is on elsewhere: /logs/there" in done.err
    assert "removed with Ray's session: gateway" in done.err


def test_one_app_as_objects(data: Path) -> None:
    first, second = run_here("logs", "shop", "--json", "--data", data).lines()
    assert first["part"] == "shop:0"
    assert [first[name] for name in ("topic", "queueId", "queueOffset", "messageId")] == [
        *("Orders", 0, 7, "A")
    ]
    assert (first["level"], first["text"]) == ("PRINT", "paid")
    assert second["text"] == "failed\nTraceback"
    assert "topic" not in second


def test_the_last_lines_and_what_is_left_out(data: Path) -> None:
    done = run_here("logs", "-n", "1", "--data", data)
    assert done.out.startswith(f"shop:0  │ {HEAD}3,000 ERROR")
    assert "earlier lines are left out, at least 2" in done.err


def test_nothing_since_a_time_is_said(data: Path) -> None:
    done = run_here("logs", "filter", "--since", "1s", "--data", data)
    assert (done.code, done.out, done.err) == (0, "", "nothing was printed or logged\n")


def test_where_the_files_are(data: Path) -> None:
    found = run_here("logs", "node", "--files", "--json", "--data", data).lines()
    assert [(each["part"], each["state"]) for each in found] == [
        *(("filter", "running"), ("gateway", "ended"))
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("shup",), 1, "did you mean shop"),
        (("zzz",), 1, "these have logs: filter, gateway, node, shop:0, shop:1"),
        (("--since", "yesterday"), 2, "'yesterday' is not a time"),
        (("--since", "5 parsecs"), 2, "is not a time"),
        (("--lines", "-1"), 2, "--lines"),
    ],
    ids=str,
)
def test_mistakes_are_explained(
    data: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run_here("logs", *arguments, "--data", data)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_a_directory_without_logs_is_named(tmp_path: Path) -> None:
    done = run_here("logs", "--data", tmp_path)
    assert done.code == 1
    assert f"no process has logged on {tmp_path}" in done.err


def test_following_shows_new_lines_also_of_processes_that_start_later(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LOOK_S", 0.01)
    shown: list[str] = []

    def write() -> None:
        wait_until(lambda: len(shown) >= 3)
        with (data / "app:shop:0.log").open("a") as file:
            file.write(f"{HEAD}4,000 PRINT charge: again\n")
        late = data / "late.log"
        late.write_text(f"{HEAD}5,000 PRINT charge: late\n")
        note_log(data, LogEntry("app:shop:2", socket.gethostname(), os.getpid(), 0, (str(late),)))

    def show(text: str) -> None:
        shown.append(text)
        if "late" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(output, "print_line", show)
    threading.Thread(target=write).start()
    assert run_here("logs", "shop", "-f", "--data", data).code == 130
    assert [line.rpartition(": ")[2] for line in shown[-2:]] == ["again", "late"]
