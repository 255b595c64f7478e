"""Which processes a process has started, from the files that every kernel with /proc has."""

from __future__ import annotations

from pathlib import Path


def children_of(pid: int) -> dict[int, str]:
    """Return the processes that it has started, each with its program's name or its own title."""
    return {each: name for each, (parent, name) in _processes().items() if parent == pid}


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    started: dict[int, list[int]] = {}
    for each, (parent, _) in _processes().items():
        started.setdefault(parent, []).append(each)

    def below(one: int) -> list[int]:
        return [each for child in started.get(one, ()) for each in (child, *below(child))]

    return below(pid)


def _processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the name of each process of this machine."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            own, _, rest = stat.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        found[int(stat.parent.name)] = int(rest.split()[1]), own.partition("(")[2]
    return found
