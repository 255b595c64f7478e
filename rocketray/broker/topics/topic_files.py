"""The files of a topic: which topic they belong to, and their removal with it.

- A queue's directory names its store host in ``store.json``, and no host is reused. So for each
  directory it is known whether it belongs to the topic that has the name now, or to an earlier one.
- The catalog records each queue that has answered once as made. If such a queue has no directory,
  that is lost, or its disk is not mounted, and an empty one in its place would reuse its offsets.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from rocketray.base.config import StoreConfig
from rocketray.base.whole_file import sync_directory
from rocketray.errors import StoreError
from rocketray.runtime.files.paths import (
    process_doorbell_path,
    producer_rings_directory,
    shard_directory,
)
from rocketray.store.files.store_settings import (
    is_foreign,
    read_settings,
    remove_store,
    without_settings,
)

from .catalog import TopicConfig
from .process_names import is_shared

HANDED_OVER = "handed_over"
"""A file in the directory of a queue that moves: no process opens it until the move has failed."""

# Two seconds in all: a shard that was killed may still create a file in the directory.
_REMOVALS = 20
_REMOVAL_INTERVAL_S = 0.1


def handed_over_file(data: Path, topic: str, queue_id: int) -> Path:
    """Return the file that is there from when a queue leaves *data*.

    It goes with the old files; or before, when the move has failed and takes the queue back.
    """
    return shard_directory(data, topic, queue_id) / HANDED_OVER


def check_no_files(data: Path, topic: str) -> None:
    """Raise :class:`StoreError` if a new topic's name has a directory, with files of another."""
    directory = shard_directory(data, topic, 0).parent
    if directory.is_dir() and any(directory.iterdir()):
        raise StoreError(
            f"{directory} has files of a topic that this node does not know, and topic {topic!r} "
            "would begin with its messages; nothing was created: move the directory away, or "
            "restore config/topics.json from a copy if the topic should be there"
        )


def check_is_there(directory: Path, topic: TopicConfig, queue_id: int) -> None:
    """Raise :class:`StoreError` if the directory of a queue that was made is missing."""
    if queue_id in topic.made and is_foreign(directory):
        what = "has no store.json" if directory.exists() else "is missing"
        advice = (
            without_settings(directory)
            if directory.exists() and any(directory.iterdir())
            else "mount its disk, or restore it from a copy; if it is lost, delete the topic and "
            "create it again"
        )
        raise StoreError(
            f"{directory} {what}, and queue {topic.name}/{queue_id} was created there; nothing "
            f"is created in its place: {advice}"
        )


def check_store_host(
    directory: Path, kept: StoreConfig | None, store_host: tuple[str, int], name: str
) -> None:
    """Raise :class:`StoreError` if the directory of queue *name* is one of another topic.

    *kept* are the settings in the directory, None if it has none.
    """
    if kept is not None and kept.store_host != store_host:
        raise StoreError(
            f"{directory} has store host {_text(kept.store_host)}, and topics.json gives queue "
            f"{name} store host {_text(store_host)}: its messages are those of another topic of "
            "that name, or topics.json is an old copy; restore topics.json, or move the directory "
            "away to begin with an empty queue"
        )


def remove_files(data: Path, topic: TopicConfig) -> None:
    """Remove the shards of a deleted topic, and the rings and doorbells that lead to them.

    They are gone from the disk on return. What a crash left of it is removed as well; files of
    another topic stay. A shard that was killed may still be writing for a moment.

    Raises:
        StoreError: the name has files of another topic. OSError: something cannot be removed.
    """
    directory = shard_directory(data, topic.name, 0).parent
    for queue in sorted(directory.iterdir()) if directory.is_dir() else ():
        kept = read_settings(queue)
        if kept is not None and kept.store_host not in topic.store_hosts:
            raise StoreError(
                f"{queue} is not of the deleted topic {topic.name!r}: it has store host "
                f"{_text(kept.store_host)}; no files of the topic are removed: move it away"
            )
    shutil.rmtree(producer_rings_directory(data, topic.name, 0).parent, ignore_errors=True)
    for _ in range(_REMOVALS):
        with suppress(OSError):
            _remove_queues(directory)
        if not directory.exists():
            break
        time.sleep(_REMOVAL_INTERVAL_S)
    else:
        _remove_queues(directory)  # raises what stands in its way
    if directory.parent.is_dir():
        sync_directory(directory.parent)  # or a power failure brings them back, as another topic's
    for process in topic.by_process():
        if not is_shared(process):
            process_doorbell_path(data, process).unlink(missing_ok=True)


def _remove_queues(directory: Path) -> None:
    """Remove the directory of a topic, all of it that can be removed."""
    failed: OSError | None = None
    for queue in directory.iterdir():
        if queue.is_dir() and not queue.is_symlink():  # of a link only the name is ours
            try:
                remove_store(queue)
            except OSError as error:
                failed = failed or error
    if failed is not None:
        raise failed
    shutil.rmtree(directory)


def _text(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"
