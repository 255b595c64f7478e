"""The command line as users start it: the installed script, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.harness.patience import patience, wait_until

COMMAND = str(Path(sys.executable).with_name("rocketray"))
ONE_PROCESS = ("--queues-per-process", "shared")
"""The options of a node whose topics start no processes, which take seconds."""


def rocketray(
    *arguments: str | Path,
    stdin: str | bytes = b"",
    timeout_s: float = 60,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, in *environ*, or in that of the tests."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=patience(timeout_s),
        env=dict(environ or os.environ),
        cwd=cwd,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def printed(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The JSON lines of a command that worked."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def start_node(
    data: Path, log: Path, *options: str, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A node on *data*, when it is ready; what it says is in *log*."""
    with log.open("w") as output:
        command = [COMMAND, "start", "--data", str(data), *options]
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=dict(environ or os.environ)
        )
    await_ready(process, log.read_text)
    return process


def await_ready(node: subprocess.Popen[bytes], said: Callable[[], str]) -> None:
    """Wait until a node has *said* that it is ready."""

    def is_ready() -> bool:
        is_there = "ready: pid" in said()
        assert is_there or node.poll() is None, said()
        return is_there

    wait_until(is_ready, said, within_s=90)


def stop_node(node: subprocess.Popen[bytes]) -> None:
    """Stop a node as its operator does; it ends without an error."""
    node.send_signal(signal.SIGTERM)
    assert node.wait(patience(60)) == 0
