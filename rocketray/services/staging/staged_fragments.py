"""The fragments in a node's directory: those there are, their ages, and their removal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocketray.runtime.files.fragment_file import (
    BatchName,
    Fragment,
    FragmentFrame,
    batch_of,
    read_frames,
)
from rocketray.store.age_clock import AgeClock

from .staging_api import StagedWork


class StagedFragments:
    """The files of one directory; for one thread at a time."""

    def __init__(self, directory: Path, clock: AgeClock) -> None:
        """Take the directory, which need not exist yet; *clock* judges the ages of its files."""
        self._directory = directory
        self._clock = clock
        self._seen: dict[str, int] = {}  # when each was first seen, by the steady clock

    def path(self, name: str) -> Path:
        return self._directory / name

    def frames(self, fragment: Fragment) -> list[FragmentFrame]:
        """Return the frames of a fragment; raises as ``read_frames``."""
        return read_frames(self._directory, fragment)

    def names(self) -> dict[str, BatchName]:
        """Return the names of all files, whole or not, and their batches."""
        found = self._directory.iterdir() if self._directory.is_dir() else ()
        batches = ((path.name, batch_of(path.name)) for path in found)
        names = {name: batch for name, batch in batches if batch is not None}
        now_ms = self._clock.steady_ms()
        self._seen = {name: self._seen.get(name, now_ms) for name in names}
        return names

    def age_ms(self, name: str) -> int:
        """Return the age of a file, 0 if it is gone."""
        try:
            written_ms = self.path(name).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0
        now_ms = self._clock.steady_ms()
        return self._clock.age_ms(written_ms, self._seen.get(name, now_ms), now_ms)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self.path(name).unlink(missing_ok=True)

    def work(self, batch: BatchName, names: Iterable[str], problem: str | None) -> StagedWork:
        """Describe the fragments of a batch; a *problem*, perhaps empty, if it is decided."""
        names = [*names]
        return StagedWork(
            batch,
            is_decided=problem is not None,
            fragments=len(names),
            size=sum(self._size(name) for name in names),
            age_ms=max((self.age_ms(name) for name in names), default=0),
            problem=problem or "",
        )

    def _size(self, name: str) -> int:
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return 0
