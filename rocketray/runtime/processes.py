"""Files that belong to a process of this node: their names begin with its process id.

A process that finds such a file can check whether the owner lives, and remove it if not.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
_PROGRAM_CHARS = 60  # of a command line, which may have thousands


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


def parent_and_start(pid: int) -> tuple[int, int]:
    """Return a process's parent, and its start in the kernel's ticks since the boot.

    Both are 0 when it has ended, and on a system without /proc.
    """
    # The name, the second field, may contain blanks and parentheses; so fields[0] is the third one:
    # 4 is the parent and 22 the start (proc(5)).
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[1]), int(fields[19])


def program_of(pid: int, proc: Path = PROC) -> str:
    """Return what a process runs, in short; raises OSError if it has ended."""
    words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    first = words[0].strip()
    if first.startswith("/") or not first:
        named = [word for word in words[1:] if word and not word.startswith("-")]
        is_python = Path(first).name.startswith("python")
        first = " ".join(named[:2]) if is_python and named else Path(first).name
    return "".join(filter(str.isprintable, first))[:_PROGRAM_CHARS]
