"""Many of Faust's commands in forks of one process: a start takes seconds, most of them imports.

Run as a module it reads a list of commands from its stdin, each the list of its arguments, runs all
of them at once, and prints a list of exit codes and outputs in their order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from faust.cli.faust import cli

import rocketray.topology.app.app  # noqa: F401 - so that no fork imports it


def run_faust(
    directory: Path, commands: Sequence[Sequence[str]], environ: Mapping[str, str] = os.environ
) -> list[tuple[int, str]]:
    """Run the commands in *directory*; the exit code and the output of each."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps([list(command) for command in commands]),
        stdout=subprocess.PIPE,
        env=dict(environ),
        cwd=directory,
        text=True,
        timeout=120,
        check=True,
    )
    return [(code, text) for code, text in json.loads(done.stdout)]


def _serve() -> None:
    running = [_begin(command) for command in json.load(sys.stdin)]
    json.dump([_end(pid, output) for pid, output in running], sys.stdout)


def _begin(command: list[str]) -> tuple[int, int]:
    output = os.memfd_create("output")
    pid = os.fork()
    if pid == 0:
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.argv[:] = ["faust", *command]  # Faust's group of commands keeps the list itself
        sys.exit(cli(prog_name="faust"))
    return pid, output


def _end(pid: int, output: int) -> tuple[int, str]:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with os.fdopen(output) as printed:
        printed.seek(0)
        return code, printed.read()


if __name__ == "__main__":
    _serve()
