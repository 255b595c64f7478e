"""Nodes of this process that a test opened: each is closed by the end of the test's file.

A node has threads. If they outlive their test, they take time from others, and what they log is in
the log that another test captured.
"""

from __future__ import annotations

from pathlib import Path

_OPEN: dict[int, Path] = {}


def note(node: object, data: Path) -> None:
    """Remember that *node*, on directory *data*, is open."""
    _OPEN[id(node)] = data


def forget(node: object) -> None:
    """Forget *node*: it is closed, or about to be."""
    _OPEN.pop(id(node), None)


def left_open() -> list[Path]:
    """Return the directories of the nodes that are open, and forget them."""
    left = list(_OPEN.values())
    _OPEN.clear()
    return left
