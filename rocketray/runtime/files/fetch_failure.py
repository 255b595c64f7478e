"""Why a disk's fetch service does not listen: from its process, for the agent of the disk."""

from __future__ import annotations

from pathlib import Path

from rocketray.base.whole_file import replace_file

from .paths import fetch_failure_file

_TEXT_MAX_BYTES = 4096  # the text is in each report of the disk to the coordinator


def note_failure(data: Path, reason: str) -> None:
    """Keep the reason why the service does not listen, for :func:`kept_failure`; "" removes it."""
    path = fetch_failure_file(data)
    if reason:
        replace_file(path, reason.encode(), sync=False)  # RUNTIME is new at each start
    else:
        path.unlink(missing_ok=True)


def kept_failure(data: Path) -> str:
    """Return why the service on *data* does not listen, or ""."""
    try:
        with fetch_failure_file(data).open("rb") as file:
            return file.read(_TEXT_MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
