"""``rocketray store``: look into store directories, ours or RocketMQ's own, without a node."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.config import CONSUME_QUEUE_ENTRY_BYTES, StoreConfig
from rocketray.errors import StoreError

from .clock import now_ms
from .messages import one_line, to_json
from .options import JsonOption
from .output import print_json, print_line

if TYPE_CHECKING:
    from rocketray.message import StoredMessage

__all__ = ["inferred_config", "store_directories", "stores"]

stores = typer.Typer(help="Look into store directories; no node is needed.", no_args_is_help=True)
_SETTINGS = "store.json"
_INDEX_HEADER_BYTES = 40
_SLOT_BYTES = 4
_ENTRY_BYTES = 20
_USUAL_ENTRIES_PER_SLOT = 4  # RocketMQ's 20 million to 5 million


@stores.callback()
def _group() -> None:
    """Look into store directories; no node is needed."""


@stores.command()
def scan(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="What to read.")
    ],
    *,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after so many messages.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a store directory, in the order of its commit log.

    \b
    DIR is one of
      a node's data directory: each of its shards, by topic and queue
      a shard's directory, or any store that rocketray made
      the store directory of a RocketMQ broker

    Nothing is changed or locked, so it may be in use. A line of --json has topic, queueId,
    queueOffset, commitLogOffset, tags, keys, properties, body (base64), storeTimestamp and
    offsetMsgId.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    for message in islice(_messages(directory), limit):
        print_json(to_json(message)) if as_json else print_line(one_line(message))


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


def inferred_config(directory: Path) -> StoreConfig | None:
    """The sizes that a RocketMQ broker gave its files, read off the files; None for our own.

    How an index file is divided cannot be seen; the usual proportion is taken, and nothing here
    looks keys up.
    """
    if (directory / _SETTINGS).exists():
        return None
    usual = StoreConfig()
    log = _first_size(directory.glob("commitlog/*")) or usual.commit_log_segment_bytes
    queue = _first_size(directory.glob("consumequeue/*/*/*"))
    index = _first_size(directory.glob("index/*"))
    slots, entries = _index_parts(index) if index else (usual.index_hash_slots, usual.index_entries)
    return StoreConfig(
        commit_log_segment_bytes=log,
        consume_queue_segment_entries=(
            queue // CONSUME_QUEUE_ENTRY_BYTES if queue else usual.consume_queue_segment_entries
        ),
        index_hash_slots=slots,
        index_entries=entries,
    )


def _messages(directory: Path) -> Iterator[StoredMessage]:
    from rocketray.store.message_store import MessageStore  # noqa: PLC0415 - imports NumPy

    for path in store_directories(directory):
        config = inferred_config(path)
        with MessageStore(path, config, read_only=True, clock_ms=now_ms) as store:
            yield from store.scan()


def _first_size(paths: Iterator[Path]) -> int | None:
    files = sorted(path for path in paths if path.is_file() and path.name.isdecimal())
    return files[0].stat().st_size if files else None


def _index_parts(size: int) -> tuple[int, int]:
    """Slots and entries that fill an index file of *size* bytes."""
    content = max(size - _INDEX_HEADER_BYTES, 0)
    slots = max(content // (_SLOT_BYTES + _USUAL_ENTRIES_PER_SLOT * _ENTRY_BYTES), 1)
    while (content - slots * _SLOT_BYTES) % _ENTRY_BYTES >= _SLOT_BYTES:
        slots += 1
    return slots, (content - slots * _SLOT_BYTES) // _ENTRY_BYTES
