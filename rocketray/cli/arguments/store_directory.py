"""The location of store directories: one of ours, one of RocketMQ's, or all shards of a node.

They are opened read-only and unchanged, beside a running writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.terminal.output import progress
from rocketray.errors import StoreError
from rocketray.runtime.clock import system_clock_ms

if TYPE_CHECKING:
    from rocketray.store.importing.foreign import ForeignSettings
    from rocketray.store.message_store import MessageStore

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The store directory.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--max-hash-slots",
        metavar="N",
        min=1,
        help="The broker's maxHashSlotNum, if RocketMQ's index files do not show it.",
    ),
]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that is open read-only; ``foreign`` has RocketMQ's settings, None for our own."""

    directory: Path
    store: MessageStore
    foreign: ForeignSettings | None

    def check_keys(self) -> None:
        """Raise :class:`ConfigError` when keys cannot be looked up here."""
        if self.foreign is not None:
            self.foreign.check_keys()


@contextmanager
def open_stores(
    directory: Path, *, index_hash_slots: int | None = None
) -> Iterator[list[OpenStore]]:
    """Open the stores that *directory* is or holds, until the block ends.

    Settings that cannot be derived from RocketMQ's files are named on stderr. Raises
    :class:`StoreError`.
    """
    from rocketray.store.message_store import MessageStore  # imports NumPy

    with ExitStack() as stack:
        opened = []
        for path in store_directories(directory):
            foreign = told_settings(path, index_hash_slots)
            config = foreign.config if foreign else None
            store = MessageStore(path, config, read_only=True, clock_ms=system_clock_ms)
            opened.append(OpenStore(path, stack.enter_context(store), foreign))
        yield opened


def store_directories(directory: Path) -> list[Path]:
    """Return the store directories that *directory* is or holds, by topic and queue id.

    Raises:
        StoreError: it is none and holds none, or one without its settings.
    """
    from rocketray.store.files.store_settings import (  # orjson
        is_foreign,
        is_store,
        without_settings,
    )

    if is_store(directory):
        return [directory]
    shards = directory / "shards"
    if shards.is_dir():
        paths = shard_directories(directory)
        for path in paths:
            if is_foreign(path) and is_store(path):
                raise StoreError(
                    f"{path} has no store.json, so it was lost; {without_settings(path)}"
                )
        return [path for path in paths if is_store(path)]
    raise StoreError(
        f"{directory} is not a store: it has neither store.json, nor a commitlog directory, nor a "
        "data directory's shards"
    )


def shard_directories(data: Path) -> list[Path]:
    """Return the directories of the shards of a node's data directory, by topic and queue id."""
    found = [path for path in data.glob("shards/*/*") if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: (path.parent.name, int(path.name)))


def foreign_settings(
    directory: Path, index_hash_slots: int | None = None
) -> ForeignSettings | None:
    """Return RocketMQ's settings of *directory*; None for our store. Raises :class:`StoreError`."""
    from rocketray.store.files.store_settings import is_foreign  # imports orjson
    from rocketray.store.importing.foreign import read_foreign_settings  # NumPy

    if not is_foreign(directory):
        return None
    return read_foreign_settings(directory, index_hash_slots=index_hash_slots)


def told_settings(directory: Path, index_hash_slots: int | None) -> ForeignSettings | None:
    """Return :func:`foreign_settings`; name on stderr what could not be derived from the files."""
    foreign = foreign_settings(directory, index_hash_slots)
    for warning in foreign.warnings if foreign else ():
        progress(f"warning: {warning}")
    return foreign
