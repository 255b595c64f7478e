"""A process that is asked questions: a program that a benchmark measures, and both ends of the talk.

A question is a line of JSON on its stdin, the answer one on its stdout behind "= ". A line ">" says
that the measured part of a question begins. Only the standard library is imported, since programs
of other environments answer, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

_TESTS = str(Path(__file__).parents[2])


class AskedProcess:
    """A process that answers questions; it ends with the block, or by ``close``."""

    def __init__(self, command: Sequence[str], work: Path) -> None:
        # It runs elsewhere, where a relative path of the environment leads nowhere.
        environ = {**os.environ, "PYTHONPATH": _TESTS}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=work,
            env=environ,
        )
        self.pid = self._process.pid
        self.get()

    def put(self, do: str, **question: Any) -> None:
        """Ask a question."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **question}) + "\n")
        self._process.stdin.flush()

    def get(self, begun: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Return the answer; *begun* is called when the measured part begins."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == ">\n":
                begun()
            elif line.startswith("= "):
                answer: dict[str, Any] = json.loads(line[2:])
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer
        raise RuntimeError("the process ended before it answered")

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        """Ask a question, and wait for the answer."""
        self.put(do, **question)
        return self.get()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answers_apart() -> TextIO:
    """Return the stdout for answers; what the process prints otherwise goes to stderr."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return output


def answer_all(find: Callable[[str], Callable[..., Any]], output: TextIO) -> None:
    """Answer questions by the functions that *find* returns for their names, until stdin ends."""
    print("= {}", file=output, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = find(question.pop("do"))(**question)
        except Exception as error:  # noqa: BLE001  # the program that asked raises it
            answer = {"error": repr(error)}
        print("=", json.dumps(answer), file=output, flush=True)
