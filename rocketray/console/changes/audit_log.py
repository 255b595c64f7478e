"""The log of all writes through the console: a line of JSON each, in the data directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from rocketray.errors import ConfigError

AUDIT_FILE = "console-audit.jsonl"


class AuditLog:
    """Appends to the file, which only the node's user can read."""

    def __init__(self, directory: Path | None, clock_ms: Callable[[], int]) -> None:
        """Without a *directory*, each write is refused."""
        self._path = None if directory is None else directory / AUDIT_FILE
        self._clock_ms = clock_ms

    def note(self, what: str, peer: str | None, **details: object) -> None:
        """Append a line; it is there before the write begins.

        Raises:
            OSError: the file cannot be written, so the write must not begin.
            ConfigError: there is no directory for it.
        """
        if self._path is None:
            raise ConfigError(
                f"this console changes nothing: {AUDIT_FILE}, where changes are written first, is "
                "in a data directory, and this machine has no disk of the cluster; use the command "
                "that does the same, or a console on a machine with a disk"
            )
        line = json.dumps({"time": self._clock_ms(), "peer": peer, "what": what, **details})
        # A link is not followed: it could lead to a file that is not the console's. Appended in one
        # write, lines of two consoles do not mix.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            os.write(file, line.encode() + b"\n")
        finally:
            os.close(file)
