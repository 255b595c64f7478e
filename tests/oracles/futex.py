"""The kernel of ``rocketray/kernels/futex.py`` that waits for nothing, in plain Python."""

from __future__ import annotations

from rocketray.kernels._compile import Int64s


def take_changes(numbers: Int64s, watched: Int64s, seen: Int64s, changed: Int64s) -> int:
    found = []
    for index in watched[: len(changed)].tolist():
        is_there = 0 <= index < min(len(numbers), len(seen))
        if is_there and numbers[index] != seen[index]:
            seen[index] = numbers[index]
            found.append(index)
    changed[: len(found)] = found
    return len(found)
