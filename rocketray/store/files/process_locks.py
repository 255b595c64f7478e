"""Locks of files that end with the process that took them, also if a fork of it lives on.

The kernel releases a ``flock`` when the last descriptor of the opened file is closed, and a fork
has a copy of each. So the child of a process that runs a node would keep the lock of its data
directory after the node has stopped, and no other node could start there. A fork lets go of what it
inherited, before it runs anything else; the lock of its parent stays.
"""

from __future__ import annotations

import os

_held: dict[int, tuple[int, int]] = {}
"""Each descriptor with a lock, and the file: its number may be another file's by now."""


def held_here(descriptor: int) -> int:
    """Return *descriptor*, whose lock is to be held by this process alone."""
    _held[descriptor] = _file_of(os.fstat(descriptor))
    return descriptor


def _let_go() -> None:
    """Replace inherited descriptors: closed ones would give their numbers to other files."""
    inherited = [*_held.items()]
    _held.clear()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor, file in inherited:
        try:
            is_same = _file_of(os.fstat(descriptor)) == file
        except OSError:  # it was closed
            continue
        if is_same:
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _file_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


os.register_at_fork(after_in_child=_let_go)
