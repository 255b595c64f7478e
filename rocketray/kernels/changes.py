"""Which numbers of an array have changed since they were last read."""

from __future__ import annotations

from ._compile import InInt64s, OutInt64s, kernel

__all__ = ["take_changes"]


@kernel
def take_changes(numbers: InInt64s, watched: InInt64s, seen: OutInt64s, changed: OutInt64s) -> int:
    """Bring *seen* up to *numbers* at the indices *watched*, and write to *changed* which differed.

    Each number is read once, so what another process writes meanwhile is noticed now or by the next
    call. Return how many indices differed. An index outside of an array is skipped.
    """
    count = 0
    size = min(len(numbers), len(seen))
    for place in range(min(len(watched), len(changed))):
        index = watched[place]
        if 0 <= index < size:
            number = numbers[index]
            if number != seen[index]:
                seen[index] = number
                changed[count] = index
                count += 1
    return count
