"""What is typed wrongly, and what a machine lacks: one line of ours, and the exit code that fits."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.harness.patience import patience
from support.nodes.local_node import LocalNode

from rocketray.actors.cluster.node import Node
from rocketray.cli import main
from rocketray.errors import ConfigError, StoreError, StoreLockedError
from rocketray.filters.subscription import Subscription
from rocketray.hosting.app_path import load_app
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.append_status import refusal

NOWHERE = "/nowhere/at/all"
ROWS: list[tuple[tuple[str, ...], int, str]] = [
    (("send", "T", "x", "--tag", "pay"), 2, "No such option: --tag .*: --tags\\)"),
    (("groups", "seek", "g", "T", "--to", "5"), 2, "such option: --to .*--offset, .*--time"),
    (("send", "T", "x", "--property", "TAGS=x"), 2, "TAGS is RocketMQ's own, .* with --tags"),
    (("send", "T", "x", "--property", "KEYS=x"), 2, "give keys with --key"),
    (("send", "T", "x", "--property", "UNIQ_KEY=x"), 2, "each message gets its own"),
    (("send", "T", "x", "--property", "region"), 2, "'region' has no '='"),
    (
        ("send", "T", "x", "--delay", "5s", "--delay-level", "3"),
        2,
        "--delay-level, --delay and --deliver-at exclude each other",
    ),
    (("send", "T", "x", "--queue", "-1"), 2, "'--queue': it has to be greater than or equal to 0"),
    (("send", "T", "x", "--ack", "never"), 2, "'never' is not one of 'memory', 'disk'"),
    (("metrics", "--port", "abc"), 2, "'--port': it has to be a valid integer$"),
    (("send", "T", "x", "--delay", "5x"), 2, "'5x' is not a time like 90s, 30m, 72h or 7d$"),
    (("stop",), 2, "A node ends with Ctrl-C, or .*; an app with: rocketray down APP"),
    (("topics", "create", "T", "--retention", "never"), 2, "'never' is not a time like 90s"),
    (("topics", "create", "T", "--bitmaps", "never"), 2, "never"),
    (("topics", "create", "T", "--queues", "0"), 2, "a topic has 1 to 1024 queues, not 0"),
    (("start", "--data-mode", "rwx"), 2, "mode 'rwx' is not three octal digits"),
    (
        ("send", "T", "--jsonl", "--tags", "pay", "--key", "k"),
        2,
        '--tags, --key: with --jsonl .* as in {"text": "paid", "tags": "pay"}; leave it out',
    ),
    (("consume", "T", "--group", "g", "--count", "1"), 2, "No such option: --count .*: --max\\)"),
    (("consume", "a.b", "--group", "g"), 2, "characters that are not allowed: '.'"),
    (("consume", "T", "--group", "g", "--sql", "a ="), 2, "end of the expression"),
    (("status",), 1, f"no node runs on {NOWHERE}"),
]


@pytest.mark.parametrize(("arguments", "code", "says"), ROWS)
def test_one_clear_line(
    arguments: tuple[str, ...], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", NOWHERE)
    done = run_here(*arguments)
    assert done.code == code
    assert re.search(says, done.err.strip().replace("\n", " ")), done.err
    for leak in ("Traceback", "pydantic", "Input should", "Value error", "delay_level="):
        assert leak not in done.err


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../shop/shop:app", "go to its directory .*: cd ../shop && rocketray up shop:app"),
        ("shop", "named as module:app"),
        ("a-b:app", "'a-b' is not a module name"),
        ("trade.py:app", "'trade.py' is not a module name; .* it: rocketray up trade:app"),
        ("nowhere_at_all:app", "No module named 'nowhere_at_all'"),
    ],
)
def test_an_app_that_is_named_wrongly(path: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_app(path)


def test_ctrl_c_in_the_first_moments_is_no_traceback() -> None:
    """At each moment of the start: while Python, NumPy and Numba are imported, and then."""
    code = "import rocketray.cli; print('.', flush=True); rocketray.cli.main(['start', '--help'])"
    for wait_s in (0.01, 0.05, 0.1, 0.2):
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(wait_s)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=patience(60))
        assert process.returncode in (-signal.SIGINT, 130, 0), errors
        assert "Traceback" not in errors


def test_importing_the_command_imports_nothing_slow() -> None:
    """So that Ctrl-C finds the command's own handling before Numba and NumPy are imported."""
    code = "import sys, rocketray.cli; print({'numpy', 'numba', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_command_loads_numba_only_when_it_handles_records() -> None:
    code = (
        "import sys, rocketray.filters.sql92.advice; "
        "from rocketray.cli.application import command_tree; command_tree(); "
        "print({'numba', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["filter", "check", "a = 1"], ["filter", "check", "a = 1", "--json"]],
)
def test_output_that_cannot_be_written_is_named(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rocketray", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "rocketray: standard output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["--version", "filter check 'a = 1'", "--help"])
def test_a_closed_stream_is_no_traceback(closed: str, arguments: str) -> None:
    command = f"{sys.executable} -m rocketray {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_for_a_closed_stdout_goes_nowhere(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("T", 1)
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(SystemExit) as end:
        main(["topics", "list"])
    assert end.value.code == 0


def test_what_an_encoding_cannot_say_is_printed_as_an_escape(tmp_path: Path) -> None:
    expression = "region = 'Zürich'"
    done = subprocess.run(
        [sys.executable, "-m", "rocketray", "filter", "check", expression, "--data", tmp_path],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Z\\xfcrich" in done.stdout


def test_a_table_is_printed_where_the_encoding_has_no_lines_to_draw_it_with(
    node: LocalNode,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    node.topics.ensure("T", 1)
    node.consumer("audit", "T", Subscription.tags("Zürich")).close()
    with redirect_stdout(out), pytest.raises(SystemExit) as end:
        main(["groups", "list"])
    assert end.value.code == 0
    out.seek(0)
    header, rule, row = out.read().splitlines()
    assert header.startswith("group  topic  subscribed to")
    assert set(rule) == set("\\u2500 ")
    assert row.startswith(r"audit  T      tags 'Z\xfcrich'")


def test_a_damaged_description_names_the_process_of_a_node_that_lives(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{")
    dead = run_here("topics", "list", "--data", tmp_path)
    assert dead.code == 1
    assert f"start one with: rocketray start --data {tmp_path}" in dead.err
    lock = lock_node(tmp_path)
    try:
        alive = run_here("topics", "list", "--data", tmp_path)
        with pytest.raises(StoreLockedError, match=rf"runs a node on .* \(pid {os.getpid()}\)"):
            Node(tmp_path)
    finally:
        os.close(lock)
    assert alive.code == 1
    assert f"kill {os.getpid()}, and start it again" in alive.err
    assert "remove it" not in alive.err


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=r"no node can run on .*/file/data: Not a directory: .*;"):
        Node(file / "data")


def test_a_full_disk_says_what_to_do() -> None:
    said = str(refusal(AppendStatus.STORE_FULL, "T/0", Path("/srv/log")))
    assert "shard T/0: the disk of /srv/log is full; nothing was stored" in said
    assert "df /srv/log" in said
    assert "--retention" in said
    far = str(refusal(AppendStatus.STORE_FULL, "T/0", Path("/srv/log"), is_here=False))
    assert "the disk of /srv/log, on the machine that rocketray status names, is full" in far
