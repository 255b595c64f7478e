"""What went wrong in a Spark query, out of the pages that Spark writes about it.

Spark wraps an error of Python code in its own message, the query's plan and the JVM's stack. The
reader wants the Python error: the last lines of the first traceback.
"""

from __future__ import annotations

from itertools import dropwhile, takewhile

__all__ = ["describe_failure"]

_TRACEBACK = "Traceback (most recent call last):"
_ENDS = ("During handling of", "\tat ", " SQLSTATE:", "=== Streaming Query", "JVM stacktrace:")


def describe_failure(error: BaseException) -> str:
    """The Python error inside *error*, type and message; else the first line of its text."""
    text = str(error) or type(error).__name__
    before, found, after = text.partition(_TRACEBACK)
    if found:
        # In a traceback all lines but the last are indented.
        rest = dropwhile(_is_indented, after.splitlines()[1:])
        lines = list(takewhile(_belongs_to_message, rest))
        if lines:
            return "\n".join(lines)
    return before.strip().partition("\n")[0]


def _is_indented(line: str) -> bool:
    return line.startswith(" ") or not line


def _belongs_to_message(line: str) -> bool:
    return bool(line) and not line.startswith(_ENDS)
