"""A limit on logged tracebacks: once for a kind of failure, and seldom from then on.

The kind of a failure is its exception's type and the line that raised it. One traceback is enough
for a message that fails every second, and for a thousand messages that fail alike; failure.py logs
a line for each failure.
"""

from __future__ import annotations

from types import TracebackType

__all__ = ["TraceLimit"]

_Kind = tuple[type[BaseException], str, int]
_FIRST_PAUSE_S = 60.0
_MAX_PAUSE_S = 3600.0
_KINDS_MAX = 64


class TraceLimit:
    """The failures of one handler, by kind: when each may be traced again."""

    def __init__(self) -> None:
        self._next: dict[_Kind, tuple[float, float]] = {}  # earliest time, and pause after it

    def allows(self, error: BaseException, now_s: float) -> bool:
        """Return whether the traceback of *error* is to be logged; asking counts as logging it.

        The pause until the next one of its kind doubles each time, from a minute to an hour.
        """
        kind = type(error), *_place(error.__traceback__)
        next_s, pause_s = self._next.pop(kind, (now_s, _FIRST_PAUSE_S))
        if now_s < next_s:
            self._next[kind] = next_s, pause_s
            return False
        self._next[kind] = now_s + pause_s, min(2 * pause_s, _MAX_PAUSE_S)
        if len(self._next) > _KINDS_MAX:
            del self._next[next(iter(self._next))]
        return True


def _place(trace: TracebackType | None) -> tuple[str, int]:
    """Return the file and line of the innermost frame."""
    if trace is None:
        return "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
