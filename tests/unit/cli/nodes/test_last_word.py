"""What is said of a process that was killed, and could say nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.patience import patience

from rocketray.runtime.process_logs.log_line import LogLine

pytestmark = pytest.mark.proves(
    "durability",
    "A node whose process is killed has said so in its terminal and its log; a GCS that "
    "takes connections and says nothing is away, which is said, and not lost",
)

_PROGRAM = """
import os, signal, sys
from pathlib import Path
from rocketray.cli.nodes.last_word import last_word

how, log, ray = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
with last_word("the node has ended; start it again", log) as word:
    word.comes_from(ray)
    if how == "told":
        word.is_said()
        os._exit(1)
    if how == "raises":
        raise SystemExit("it says so itself")
    if how != "ends":
        os.kill(os.getpid(), int(how))
"""


def run(how: str, log: Path, ray: Path) -> tuple[int, str]:
    """The code with which a process ends, and what stands on its terminal."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how, str(log), str(ray)],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "node's log"
    path.write_text("")
    return path


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_process_that_was_killed_has_a_line_on_its_terminal_and_in_its_log(
    log: Path, number: int
) -> None:
    ray = log.with_name("commands.err")
    ray.write_text("C  last year: The program will terminate.\n" + 30 * "another line\n")
    assert run(str(int(number)), log, ray) == (-number, "the node has ended; start it again\n")
    line = LogLine.parse(log.read_text().removesuffix("\n"))
    assert line.time_ms is not None
    assert (line.level, line.logger) == ("ERROR", "rocketray")
    assert line.text == "the node has ended; start it again"


def test_what_ray_said_when_it_ended_the_process_is_there(log: Path) -> None:
    ray = log.with_name("commands.err")
    ray.write_text(
        "C  GCS: Failed to connect within 60 seconds. The program will terminate.\nmore\n"
    )
    _, said = run(str(int(signal.SIGKILL)), log, ray)
    assert said == (
        "the node has ended; start it again; Ray said: C  GCS: Failed to connect within 60 "
        "seconds. The program will terminate.\n"
    )
    assert said in log.read_text()


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [("ends", 0, ""), ("told", 1, ""), ("raises", 1, "it says so itself\n")],
)
def test_one_that_ends_by_itself_has_the_last_word(
    log: Path, how: str, code: int, said: str
) -> None:
    assert run(how, log, log.with_name("none")) == (code, said)
    assert log.read_text() == ""


def test_without_a_log_yet_none_is_made(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "node.log"
    _, said = run(str(int(signal.SIGKILL)), log, tmp_path / "none")
    assert said == "the node has ended; start it again\n"
    assert not log.parent.exists()
