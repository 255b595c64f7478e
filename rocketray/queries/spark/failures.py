"""The error of a Spark query, extracted from the pages that Spark writes about it.

Spark wraps an error of Python code in its own message, the query's plan and the JVM's stack. The
reader needs the Python error, the last lines of the first traceback, and its place in the code of
the query's author. Our own errors are meant for that author, so :func:`plainly` has Spark write
them without the frames that led to them.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import wraps
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import ParamSpec, TypeVar

from rocketray.errors import StreamError
from rocketray.topology.app.own_code import is_installed

_P = ParamSpec("_P")
_R = TypeVar("_R")

_TRACEBACK = "Traceback (most recent call last):"
_PY4J = re.compile(r"(py4j\.protocol\.\w+: )?An error occurred while calling \S+\Z")
_FRAME = re.compile(r'^ +File "(/[^"\n]+)", line (\d+)', re.MULTILINE)
_ENDS = ("During handling of", "\tat ", " SQLSTATE:", "=== Streaming Query", "JVM stacktrace:")


def describe_failure(error: BaseException) -> str:
    """Return the Python error inside *error*, type and message; else the first line of its text."""
    text = str(error) or type(error).__name__
    before, found, after = text.partition(_TRACEBACK)
    if found:
        # In a traceback all lines but the last are indented.
        rest = dropwhile(lambda line: line.startswith(" ") or not line, after.splitlines()[1:])
        lines = list(takewhile(lambda line: line and not line.startswith(_ENDS), rest))
        if lines:
            return "\n".join(_behind_py4j(lines))
    return _behind_py4j(before.strip().splitlines() or [""])[0]


def _behind_py4j(lines: list[str]) -> list[str]:
    """Return *lines* without the first one, if it is py4j's about an error of Java in the next."""
    if len(lines) > 1 and _PY4J.match(lines[0]):
        return [lines[1].removeprefix(": "), *lines[2:]]
    return lines


def place_of_failure(error: BaseException) -> str | None:
    """Return the last line of the author's own code that *error* went through, as ``file:line``.

    That may be in the text of the error, which is of another process, or in this one.
    """
    frames = [
        *((each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)),
        *_FRAME.findall(str(error)),
    ]
    for file, line in reversed(frames):
        if file.startswith("/") and not is_installed(Path(file)):
            return f"{file}:{line}"
    return None


def plainly(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a method that Spark calls: our own errors leave it with a traceback of one frame."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except StreamError as error:
            raise error.with_traceback(None) from None

    return call
