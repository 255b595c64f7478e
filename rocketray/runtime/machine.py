"""The machine that a process is on, and whether a described process lives on this machine.

Two machines, or two containers, may have the same process ids. The same path may lead to a
directory that they share, to copies of it, or to nothing. So the description of a process has the
kernel's boot id and the name space of its process ids beside the id itself. And its start: the
kernel gives the number of a name space again, and a container that is started again has processes
of the same ids.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from .processes import is_alive, parent_and_start

Whereabouts = Literal["here", "gone", "elsewhere"]
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS_NAMES = Path("/proc/self/ns/pid")


def this_process() -> dict[str, Any]:
    """Return the description of this process."""
    pid = os.getpid()
    return {"pid": pid, "startedTicks": parent_and_start(pid)[1], **here()}


def here() -> dict[str, Any]:
    """Return this machine's part of the description of a process."""
    return {
        "machine": socket.gethostname(),
        "bootId": _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "",
        "processNames": str(_PROCESS_NAMES.readlink()) if _PROCESS_NAMES.is_symlink() else "",
    }


def user_name() -> str:
    """Return the user of this process; in a container its user id may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return f"uid {os.getuid()}"


def whereabouts(process: Mapping[str, Any]) -> Whereabouts:
    """Return whether the described process lives here, is gone, or belongs to another machine.

    A rebooted machine has another boot id and the same name. A description without either was
    written by an older version, and is taken as of this machine.
    """
    now = here()
    # Both have to be the same: a pid means a process only in one boot, and in one name space.
    if all(process.get(name, now[name]) == now[name] for name in ("bootId", "processNames")):
        return "here" if _lives(process) else "gone"
    return "gone" if process.get("machine") == now["machine"] else "elsewhere"


def _lives(process: Mapping[str, Any]) -> bool:
    try:
        pid = int(process.get("pid", 0))
    except (ValueError, TypeError):
        return False
    if pid <= 0 or not is_alive(pid):
        return False
    _, started = parent_and_start(pid)
    return bool(process.get("startedTicks", started) == started)
