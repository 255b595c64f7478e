"""What consumers of numbered messages write down: a line for each message, whole or not at all.

A line is seven integers: when (ns of the machine's steady clock), whether the message came from the
group's retry topic, queue, queue offset, the number in its body, what became of it, and how often
the process had been given queues by then, 0 if it does not know. Each process of a group has a file
of its own, so a line that is there was handed out there.
"""

from __future__ import annotations

import os
import time
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple


class Outcome(IntEnum):
    """What becomes of a message that was handed out."""

    TRIED = 0  # it failed, and comes again in its place
    DONE = 1
    SENT_BACK = 2  # it failed, and comes again through the retry topic


class Entry(NamedTuple):
    """One message in one consumer's hands."""

    at_ns: int
    is_retry: int
    queue_id: int
    queue_offset: int
    number: int
    outcome: int
    stint: int = 0

    @property
    def queue(self) -> tuple[int, int]:
        """The queue, as it is told from those of the other topic."""
        return self.is_retry, self.queue_id


class Journal:
    """One process's part of a group's journal."""

    def __init__(self, directory: Path, group: str, process: str) -> None:
        (directory / group).mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(directory / group / process, flags, 0o600)
        self._stint = 0

    def note(
        self,
        queue_id: int,
        queue_offset: int,
        number: int,
        *,
        is_retry: bool = False,
        outcome: Outcome = Outcome.DONE,
    ) -> None:
        """Write a line; it outlives this process."""
        entry = Entry(
            *(time.monotonic_ns(), int(is_retry), queue_id, queue_offset, number),
            *(int(outcome), self._stint),
        )
        os.write(self._file, (" ".join(map(str, entry)) + "\n").encode())

    def begin_stint(self) -> None:
        """Count what is noted from now on to other times of ownership: queues came or went."""
        self._stint += 1


class Journals:
    """All journals below a directory, read as they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.entries: dict[str, dict[str, list[Entry]]] = {}
        """By group and process."""
        self.done: dict[str, set[int]] = {}
        """The numbers that each group finished."""

    def read(self) -> None:
        """Take what came since the last call."""
        for path in sorted(self._directory.glob("*/*")):
            with path.open("rb") as file:
                start = file.seek(self._read.get(path, 0))
                lines = file.read().rpartition(b"\n")[0].split(b"\n")
            group = self.entries.setdefault(path.parent.name, {})
            entries = [Entry(*map(int, line.split())) for line in lines if line]
            group.setdefault(path.name, []).extend(entries)
            done = self.done.setdefault(path.parent.name, set())
            done.update(entry.number for entry in entries if entry.outcome == Outcome.DONE)
            self._read[path] = start + sum(len(line) + 1 for line in lines if line)
