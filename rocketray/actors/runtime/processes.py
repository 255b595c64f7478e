"""Files that belong to a process of this node: their names begin with its process id.

Who finds such a file can tell whether its owner still lives, and clean up behind it when not.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_alive", "owned_name", "owner_pid"]


def owned_name(name: str) -> str:
    """*name* as this process's own."""
    return f"{os.getpid()}-{name}"


def owner_pid(path: Path) -> int:
    """The process that a file belongs to; 0, which always lives, when its name does not say."""
    text = path.name.partition("-")[0]
    return int(text) if text.isascii() and text.isdigit() else 0


def is_alive(pid: int) -> bool:
    """Whether there is such a process, ours or not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has a number like that
        return False
    except PermissionError:
        return True
    return True
