"""What source and target of a queue's copy tell each other in a round (queue_copy.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileSums:
    """The blocks of a file from ``first`` on: the CRC-32 of each, or -1 if it is all zeros.

    ``incarnation`` changes when the file is replaced. The first ``stable`` blocks cannot change.
    """

    size: int
    incarnation: int
    stable: int
    first: int
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """How far a round is: the bytes that were fetched, of those that differ.

    Both are 0 as long as the blocks are compared.
    """

    fetched_bytes: int = 0
    differing_bytes: int = 0


Known = Mapping[str, tuple[int, int]]
"""The incarnation of files, and how many of their blocks the target has for good."""
