"""Many commands in one process, which joins Ray once: a join takes seconds, a command little.

Run as a module it reads ``{"arguments": […], "stdin": "…", "directory": "…"}`` a line and answers
each with ``{"code", "out", "err"}``.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.harness.patience import patience

from rocketray.cli import main
from rocketray.cli.arguments.node import choose_cluster


@dataclass(frozen=True, slots=True)
class Done:
    """What one command did."""

    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of a command that worked."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


def run_here(*arguments: str | Path, stdin: str = "") -> Done:
    """Run one command in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = 0 if end.code is None else int(end.code)
    finally:
        sys.stdin = before
        choose_cluster(None)  # a process has one command; the next test names none
    return Done(code, out.getvalue(), err.getvalue())


class CommandServer:
    """The process that runs the commands."""

    def __init__(self, environ: Mapping[str, str], directory: Path | None = None) -> None:
        self._directory = directory or Path.cwd()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environ) | {"PYTHONPATH": os.environ["PYTHONPATH"]},  # it runs anywhere
            cwd=self._directory,
            text=True,
        )

    def __call__(
        self, *arguments: str | Path, stdin: str = "", directory: Path | None = None
    ) -> Done:
        """Run one command, in *directory* if it is given."""
        assert self._process.stdin
        assert self._process.stdout
        request = {
            "arguments": [str(argument) for argument in arguments],
            "stdin": stdin,
            "directory": str(directory or self._directory),
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Done(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=patience(60))


def _serve() -> None:
    requests, answers = os.fdopen(os.dup(0)), sys.stdout
    for line in requests:
        request = json.loads(line)
        os.chdir(request["directory"])
        with os.fdopen(os.memfd_create("stdin"), "wb") as given:  # for what reads it by its number
            given.write(request["stdin"].encode())
            given.seek(0)
            os.dup2(given.fileno(), 0)
        done = run_here(*request["arguments"], stdin=request["stdin"])
        answers.write(json.dumps({"code": done.code, "out": done.out, "err": done.err}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
