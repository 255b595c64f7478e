"""Where store directories are: one of ours, one of RocketMQ's, or all shards of a node.

They are opened read-only, as they lie, beside whoever writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.errors import StoreError

from .clock import now_ms
from .output import progress

if TYPE_CHECKING:
    from rocketray.store.foreign import ForeignSettings
    from rocketray.store.message_store import MessageStore

__all__ = [
    "DirectoryArgument",
    "OpenStore",
    "SlotsOption",
    "foreign_settings",
    "open_stores",
    "store_directories",
]

_SETTINGS = "store.json"

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="What to read.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--max-hash-slots",
        metavar="N",
        min=1,
        help="The broker's maxHashSlotNum, where it cannot be told from RocketMQ's index files.",
    ),
]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that is open read-only; ``foreign`` is how RocketMQ wrote it, None for our own."""

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
    """The stores that *directory* is or holds, open until the block ends.

    What could not be told from RocketMQ's files is said on stderr. Raises :class:`StoreError`.
    """
    with ExitStack() as closing:
        opened = [_open(path, index_hash_slots) for path in store_directories(directory)]
        for one in opened:
            closing.callback(one.store.close)
        yield opened


def store_directories(directory: Path) -> list[Path]:
    """The store directories that *directory* is or holds, by topic and queue id.

    Raises:
        StoreError: it is none and holds none.
    """
    if (directory / _SETTINGS).exists() or (directory / "commitlog").is_dir():
        return [directory]
    shards = directory / "shards"
    if shards.is_dir():
        found = [queue for queue in shards.glob("*/*") if (queue / _SETTINGS).exists()]
        return sorted(found, key=lambda path: (path.parent.name, int(path.name)))
    raise StoreError(
        f"{directory} is no store: it has neither {_SETTINGS} nor a commitlog directory, "
        "and no shards directory as a node's data directory has"
    )


def foreign_settings(
    directory: Path, index_hash_slots: int | None = None
) -> ForeignSettings | None:
    """How RocketMQ wrote *directory*; None for a store of ours. Raises :class:`StoreError`."""
    from rocketray.store.foreign import read_foreign_settings  # noqa: PLC0415 - imports NumPy

    if (directory / _SETTINGS).exists():
        return None
    return read_foreign_settings(directory, index_hash_slots=index_hash_slots)


def _open(directory: Path, index_hash_slots: int | None) -> OpenStore:
    from rocketray.store.message_store import MessageStore  # noqa: PLC0415 - imports NumPy

    foreign = foreign_settings(directory, index_hash_slots)
    for warning in foreign.warnings if foreign else ():
        progress(f"warning: {warning}")
    config = foreign.config if foreign else None
    store = MessageStore(directory, config, read_only=True, clock_ms=now_ms)
    return OpenStore(directory, store, foreign)
