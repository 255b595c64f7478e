"""A message that fails repeatedly, as members report it and commands print it.

A queue has at most one: the member holds the queue at that message. The reason of the failure is
the type and the text of the exception, on one line of bounded length, so that it also fits into a
property of a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass

REASON_MAX_CHARS = 500  # 2 kB of UTF-8 at most, of the 32 kB that all properties may have
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class FailingMessage:
    """The message at which a member holds a queue.

    ``attempt`` attempts have failed so far, the last one for ``reason``. After attempt number
    ``last_attempt`` the message is dead-lettered; with None it is retried without limit.
    """

    queue_offset: int
    attempt: int
    last_attempt: int | None
    reason: str

    def __str__(self) -> str:
        of = "" if self.last_attempt is None else f" of {self.last_attempt}"
        return f"held at offset {self.queue_offset}: attempt {self.attempt}{of}, {self.reason}"


def reason_of(error: BaseException) -> str:
    """Return the type and the text of *error* as one line of at most 500 characters.

    Control characters, which properties cannot hold, become blanks. So do lone surrogates, which
    have no UTF-8 form.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the exception is a user's, and so is its __str__
        text = ""
    shown = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join([f"{type(error).__name__}:", *shown.split()]).removesuffix(":")
    if len(line) > REASON_MAX_CHARS:
        return line[: REASON_MAX_CHARS - 1] + _ELLIPSIS
    return line
