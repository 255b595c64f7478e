"""Files that belong to a process of this node: their names begin with its process id.

A process that finds such a file can check whether the owner lives, and remove it if not.
"""

from __future__ import annotations

import os
from pathlib import Path


def owned_name(name: str) -> str:
    """Return *name* as a name owned by this process."""
    return f"{os.getpid()}-{name}"


def owner_pid(path: Path) -> int:
    """Return the pid that owns a file; 0, which counts as alive, if the name does not say."""
    text = path.name.partition("-")[0]
    return int(text) if text.isascii() and text.isdigit() else 0


def is_alive(pid: int) -> bool:
    """Return whether the process exists, of this user or another."""
    try:
        os.kill(pid, 0)  # sends nothing; a pid that was given to another process counts as alive
    except (ProcessLookupError, OverflowError):  # no process has such a number
        return False
    except PermissionError:
        return True
    return True
