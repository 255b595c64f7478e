"""The queues of one topic, for readers that belong to no group.

DIR is a node's data directory, running or not, one shard's directory, or a RocketMQ broker's store.
Nothing is locked and nothing is written, so it may be in use: readers see the messages that its
writer had published when the view was opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketray.base.config import StoreConfig
from rocketray.base.meant import meant
from rocketray.base.names import check_stored_topic
from rocketray.errors import StoreError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.paths import CONTROL_PAGE, shard_directory
from rocketray.runtime.ipc.control_page_reader import ControlView
from rocketray.store.files.store_settings import is_foreign, is_store
from rocketray.store.importing.foreign import read_foreign_settings
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue: the offsets from ``minimum`` up to, not including, ``maximum`` can be read.

    ``store`` is the directory of its store.
    """

    queue_id: int
    minimum: int
    maximum: int
    reader: QueueReader
    store: Path

    def count(self) -> int:
        return self.reader.gaps.count(self.minimum, self.maximum)

    def first_stored_at(self, time_ms: int) -> int:
        """Return the first offset of a message stored at that time or later, else ``maximum``."""
        return self.reader.gaps.find(
            lambda at: self._stored_at(at) >= time_ms, self.minimum, self.maximum
        )

    def _stored_at(self, queue_offset: int) -> int:
        (message,) = self.reader.messages(self.reader.entries(queue_offset, queue_offset + 1))
        return message.store_timestamp_ms


@contextmanager
def open_queues(directory: Path | Sequence[Path], topic: str) -> Iterator[list[QueueView]]:
    """Yield the queues of *topic* in a *directory*, or in several, open until the block ends.

    They are by id, of each directory.

    Raises:
        InvalidNameError: it is not a valid topic name.
        StoreError: a directory is not a store, or has no such topic.
    """
    check_stored_topic(topic)
    with ExitStack() as opened:
        directories = [directory] if isinstance(directory, Path) else directory
        yield [view for one in directories for view in opened.enter_context(_open_in(one, topic))]


@contextmanager
def _open_in(directory: Path, topic: str) -> Iterator[list[QueueView]]:
    with ExitStack() as closing:
        if (directory / "shards").is_dir():
            views = _of_node(shard_directory(directory, topic, 0).parent, topic)
        elif (directory / CONTROL_PAGE).is_file() and directory.name.isdecimal():
            views = _of_node(directory.parent, topic, only=directory)
        elif is_store(directory):
            views = _of_store(directory, topic)
        else:
            raise _no_store(directory)
        for view in views:
            closing.callback(view.reader.close)
        if not views:
            near = meant(topic, topics_in(directory))
            otherwise = f"did you mean {near[0]!r}? Otherwise " if near else ""
            raise StoreError(
                f"{directory} has no topic {topic!r}; {otherwise}see: rocketray store topics "
                f"{directory}"
            )
        yield views


def open_queue(store: Path, topic: str, queue_id: int) -> QueueReader:
    """Return a reader of one queue of a store directory, ours or a broker's; close it."""
    return QueueReader(store, topic, queue_id, _foreign_config(store))


def topics_in(directory: Path) -> dict[str, list[int]]:
    """Return the ids of the queues of each topic in *directory*; see :func:`open_queues`.

    Raises:
        StoreError: the directory is not a store.
    """
    if (directory / "shards").is_dir():
        queues = directory.glob("shards/*/*/consumequeue/*/*")
    elif is_store(directory):
        queues = directory.glob("consumequeue/*/*")
    else:
        raise _no_store(directory)
    queue_ids: dict[str, list[int]] = {}
    for queue in sorted(queues):
        if queue.name.isdecimal() and queue.is_dir():
            queue_ids.setdefault(queue.parent.name, []).append(int(queue.name))
    return queue_ids


def _no_store(directory: Path) -> StoreError:
    return StoreError(f"{directory} is neither a node's data directory nor a store directory")


def _of_node(shards: Path, topic: str, only: Path | None = None) -> list[QueueView]:
    """Return the shards of a topic, each as far as its control page says."""
    views = []
    # By number: the names have no leading zeros.
    directories = shards.glob("*") if only is None else [only]
    for directory in sorted(directories, key=lambda path: path.name.zfill(20)):
        try:
            page = ControlView(directory / CONTROL_PAGE)
        except FileNotFoundError:
            continue  # it is being created
        queue_id = int(directory.name)
        if only is not None and not (directory / "consumequeue" / topic).is_dir():
            continue
        reader = QueueReader(directory, topic, queue_id)
        views.append(QueueView(queue_id, page.minimum(), page.visible(), reader, directory))
    return views


def _of_store(directory: Path, topic: str) -> list[QueueView]:
    """Return the queues of a topic in a store of many: ours, or a broker's."""
    config = _foreign_config(directory)
    with MessageStore(directory, config, read_only=True, clock_ms=system_clock_ms) as store:
        return [
            QueueView(
                queue_id,
                store.reads.min_queue_offset(topic, queue_id),
                store.reads.max_queue_offset(topic, queue_id),
                QueueReader(directory, topic, queue_id, config),
                directory,
            )
            for name, queue_id in store.reads.queues()
            if name == topic
        ]


def _foreign_config(directory: Path) -> StoreConfig | None:
    """Return the settings of a broker's store; None for one of ours, which has them in a file."""
    return read_foreign_settings(directory).config if is_foreign(directory) else None
