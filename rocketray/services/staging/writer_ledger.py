"""What is known of the writers of staged batches: their last decided batch, and what is left of it.

    DATA/config/stagedBatches/<writer>.json
        {"version": 1, "run": …, "formerRuns": […], "lastBatch": 7, "usedMs": 17…,
         "isSingle": false, "decided": [{"batch": 7, "halves": [[name, size, messages], …]}]}

A batch is decided when the file that says so is on disk; ``decided`` are those of which messages
are not in their topics yet. A file is replaced as a whole (state_files.py), so a decision is made
as a whole, with the run that made it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import json_fields, read_value
from rocketray.errors import StoreError
from rocketray.runtime.files.fragment_file import BatchName, Fragment, check_fragment
from rocketray.runtime.files.state_files import read_state, remove_state, write_json

_LOG = logging.getLogger(__name__)
_FORM = FileForm("config/stagedBatches/*.json")
# A run that was replaced is refused as long as it is among these: it would have to come back after
# its query was started 100 times more.
_FORMER_RUNS_MAX = 100
_WRITERS_MAX = 10_000  # a file each, all of which are read at the start


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """A batch that is decided, and not yet wholly in its topics."""

    number: int = field(metadata={"json": "batch"})
    fragments: tuple[Fragment, ...] = field(metadata={"json": "halves"})

    def __post_init__(self) -> None:
        for fragment in self.fragments:
            check_fragment(fragment.name)


@dataclass(frozen=True, slots=True)
class WriterState:
    """A writer: the run that may decide, and ``last``, the number of its last decided batch.

    A run in ``former`` was replaced by another one, and decides nothing more. ``is_single`` says
    that the writer has one batch only, so its state is not needed for long.
    """

    writer: str
    run: str = ""
    former: tuple[str, ...] = field(default=(), metadata={"json": "formerRuns"})
    last: int = field(default=-1, metadata={"json": "lastBatch"})
    used_ms: int = 0
    is_single: bool = False
    decided: tuple[DecidedBatch, ...] = ()

    def taken_over(self, run: str) -> WriterState:
        """Return the state in which *run* decides, and no run before it any more."""
        if run == self.run:
            return self
        former = (*self.former, self.run)[-_FORMER_RUNS_MAX:] if self.run else self.former
        return replace(self, run=run, former=former)

    def without(self, number: int) -> WriterState:
        """Return the state in which all messages of that batch are in their topics."""
        return replace(self, decided=tuple(each for each in self.decided if each.number != number))


class WriterLedger:
    """The states of all writers; for one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Read the files; one that is damaged closes its writer, and no other."""
        self._directory = directory
        self._states: dict[str, WriterState] = {}
        self._damaged: dict[str, StoreError] = {}
        for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
            try:
                state = read_state(path, partial(_parsed, path.stem), owns=True)
            except StoreError as error:
                _LOG.error("writer %s of staged batches stays closed: %s", path.stem, error)
                self._damaged[path.stem] = error
            else:
                if state is not None:
                    self._states[path.stem] = state

    def __iter__(self) -> Iterator[WriterState]:
        return iter([*self._states.values()])

    @property
    def damaged(self) -> dict[str, StoreError]:
        """The writers whose file cannot be read."""
        return dict(self._damaged)

    def get(self, writer: str) -> WriterState:
        """Return the state of a writer, whose name was checked; a new one if it is not known.

        Raises:
            StoreError: its file is damaged, or there are too many writers.
        """
        if writer in self._damaged:
            raise self._damaged[writer]
        if writer not in self._states and len(self._states) >= _WRITERS_MAX:
            raise StoreError(
                f"{self._directory} has {_WRITERS_MAX} writers of staged batches; give the "
                "queries that run again and again the same txnAppId, and remove the files of those "
                "that never run again, while the node is stopped"
            )
        return self._states.get(writer) or WriterState(writer)

    def knows(self, batch: BatchName) -> bool:
        """Return whether that batch, or a later one of its writer, was decided."""
        state = self._states.get(batch.writer)
        return state is not None and batch.number <= state.last

    def save(self, state: WriterState) -> None:
        """Replace the state of a writer; on disk on return.

        Raises:
            OSError: it is not known whether the file was replaced.
        """
        content = json_fields(state)
        del content["writer"]
        write_json(self._path(state.writer), _FORM.of(content), is_indented=False)
        self._states[state.writer] = state

    def remove(self, writer: str) -> None:
        """Remove a writer's file: a batch of a writer with that name is a first one again."""
        remove_state(self._path(writer))
        self._states.pop(writer, None)

    def _path(self, writer: str) -> Path:
        return self._directory / f"{writer}.json"


def _parsed(writer: str, value: dict[str, Any]) -> WriterState:
    return read_value(WriterState, {**_FORM.content(value), "writer": writer})
