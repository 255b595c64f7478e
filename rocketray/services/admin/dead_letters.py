"""Dead letters: listing them, and redriving them to be delivered once more.

A redriven letter goes to the retry topic of its group, as in RocketMQ:

- The group gets it again with all its attempts; other groups of its first topic do not.
- It keeps body, keys, tag, unique key and properties; ``REDRIVEN_FROM`` names the letter.
- The letter itself stays.
- A letter that the node itself dead-lettered (undeliverable.py) goes to its original target topic.

From another machine, the gateway of their disk is asked (dead_letter_service.py).

Each letter is redriven once, also if a redrive is interrupted. A journal beside the node's state
records the letters that are done and, before a batch is sent, the letters in it, their target and
the end of the target at that time. A redrive that finds such a record first searches the target: a
batch is stored whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from rocketray.base.file_form import FileForm
from rocketray.base.marks import (
    DELAY_PROPERTIES,
    FAILURE_REASON,
    GIVEN_UP_BY,
    ORIGIN_MESSAGE_ID,
    REDRIVEN_FROM,
    RETRY_QUEUE_ID,
    RETRY_TOPIC,
    mark,
)
from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group
from rocketray.broker.filtering.filter_stream import RECORDS_MAX, scan_block
from rocketray.broker.retries.dead_letter_api import LetterBox
from rocketray.broker.retries.deliveries import Place
from rocketray.broker.retries.retry_records import (
    RETRY_QUEUES,
    dead_letter_topic,
    queue_of,
    retry_topic,
)
from rocketray.broker.retries.undeliverable import NODE_GROUPS, first_place
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.queue_views import QueueView, open_queues
from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    NodeElsewhereError,
    OffsetOutOfRangeError,
    StoreLockedError,
    TopicNotFoundError,
)
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.tails import tail_of
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.files.paths import CONTROL_PAGE, config_directory, shard_directory
from rocketray.runtime.files.state_files import read_state, write_json
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.formats.sys_flag import TRANSACTION

from .dead_letter_calls import letters_by_calls, redrive_by_calls

_FORM = FileForm("config/redriven/TOPIC.json")
_DONE_MAX = 100_000_000  # letters in a journal; a damaged one could ask for any amount of memory
# Larger by one body at most, so 8 MiB. A batch has to fit in one file of the log, so that it is
# stored whole or not at all: an interrupted redrive looks for its first letter only.
_BATCH_MAX = 256
_BATCH_BYTES = 4 * 1024 * 1024


class Journal:
    """The redriven letters of a topic, by queue offset; each call has its change on disk."""

    def __init__(self, data: Path, topic: TopicConfig, *, owns: bool = False) -> None:
        """Read the journal of *topic*, and ignore one of a deleted topic with the same name.

        A redrive *owns* the file, and repairs it if it is damaged (state_files.py).
        """
        self._path = _journal_path(data, topic.name)
        self._identity = ":".join(map(str, topic.store_hosts[0]))
        self._take({})
        read_state(self._path, self._take, owns=owns)

    def _take(self, value: dict[str, Any]) -> None:
        if _FORM.content(value).get("storeHost") != self._identity:
            value = {}
        done = [range(first, end) for first, end in value.get("done", [])]
        if sum(map(len, done)) > _DONE_MAX:
            raise ValueError(f"more than {_DONE_MAX} letters are done")
        self.done = set(chain.from_iterable(done))
        self.under_way: list[int] = [int(n) for n in value.get("underWay", [])]
        self.looked_from = int(value.get("lookedFrom", 0))
        self.first_id = str(value.get("firstId", ""))
        target = str(value.get("target", "")).rpartition("/")
        self.target: Place | None = (target[0], int(target[2])) if target[0] else None

    def begin(self, batch: Sequence[StoredMessage], target: Place, looked_from: int) -> None:
        """Record that these letters are being sent to *target*, which ends at *looked_from*."""
        self.target = target
        self.under_way = [letter.queue_offset for letter in batch]
        self.looked_from, self.first_id = looked_from, batch[0].offset_message_id
        self._save()

    def finish(self, *, are_stored: bool) -> None:
        """Record whether the letters that were being sent are stored."""
        if are_stored:
            self.done |= set(self.under_way)
        self.under_way = []
        self._save()

    def _save(self) -> None:
        content = {
            "storeHost": self._identity,
            "done": _ranges(sorted(self.done)),
            "underWay": self.under_way,
            "lookedFrom": self.looked_from,
            "firstId": self.first_id,
            **({"target": f"{self.target[0]}/{self.target[1]}"} if self.target else {}),
        }
        write_json(self._path, _FORM.of(content))


def letter_boxes(node: NodeClient) -> list[LetterBox]:
    boxes = []
    data = _files_of(node)
    if data is None:
        return node.letters.boxes()
    for name, topic in sorted(node.topics.all().items()):
        if name.startswith(DEAD_LETTER_PREFIX) and _has_files(data, name):
            with open_queues(data, name) as views:
                spans = [range(view.minimum, view.maximum) for view in views]
                there = sum(view.count() for view in views)
                reason = _newest_reason(views[0])
            done = Journal(data, topic).done
            # The topic has one queue, and the journal keeps letters that retention removed since.
            redriven = sum(offset in spans[0] for offset in done)
            group = name.removeprefix(DEAD_LETTER_PREFIX)
            boxes.append(LetterBox(group, name, there, redriven, reason))
    return boxes


def letters(
    node: NodeClient,
    group: str,
    subscription: Subscription,
    topic: str | None = None,
    *,
    start: int = 0,
) -> Iterator[tuple[StoredMessage, bool]]:
    """Yield the matching letters of *group*, oldest first, each with whether it was redriven.

    They are read from *topic*, by default ``%DLQ%`` and the group's name, from queue offset *start*
    on.

    Raises:
        ConfigError: the group has no dead letters. FilterError: the subscription cannot be used.
    """
    data = _files_of(node)
    if data is None:
        yield from letters_by_calls(node.letters, group, subscription, topic, start)
        return
    config = _topic(node, group, topic)
    done = Journal(data, config).done
    for letter in _letters_of(data, group, config.name, subscription, start):
        yield letter, letter.queue_offset in done


def redrive(
    node: NodeClient,
    producer: NodeProducer,
    group: str,
    subscription: Subscription,
    *,
    topic: str | None = None,
    limit: int | None = None,
) -> int:
    """Redrive the matching dead letters of *group*, oldest first, at most *limit* of them.

    Return the number of letters sent now; letters that were redriven before are not counted.

    Raises:
        As :func:`letters`.
        StoreLockedError: another redrive of these letters is running.
        StreamError: the node cannot store them now, or has no such topic; batches sent before stay
            redriven.
    """
    data = _files_of(node)
    if data is None:
        return redrive_by_calls(node.letters, group, subscription, topic, limit)
    config = _topic(node, group, topic)
    count = 0
    with _alone(data, config.name):
        journal = Journal(data, config, owns=True)
        if journal.under_way:  # an earlier redrive ended before it knew the outcome
            journal.finish(are_stored=_is_stored(node, journal, group))
        new = (
            letter
            for letter in _letters_of(data, group, config.name, subscription, 0)
            if letter.queue_offset not in journal.done
        )
        aimed = _with_targets(node, group, new)
        for target, batch in _batches(islice(aimed, limit)):
            with closing(tail_of(node, *target)) as tail:
                end = tail.end()
            journal.begin(batch, target, end)
            producer.forward(*target, [_again(letter, target[0]) for letter in batch])
            journal.finish(are_stored=True)
            count += len(batch)
    return count


def _files_of(node: NodeClient) -> Path | None:
    """Return the directory of the dead letters; None if it is on another machine."""
    try:
        return node.files("reading dead letters")
    except NodeElsewhereError:
        return None


def _with_targets(
    node: NodeClient, group: str, found: Iterable[StoredMessage]
) -> Iterator[tuple[Place, StoredMessage]]:
    """Yield each letter with its target queue; letters that name none are skipped.

    Raises:
        TopicNotFoundError: the original target topic of a node's letter still does not exist.
    """
    is_of_node = group in NODE_GROUPS
    topics: dict[str, TopicConfig] = {}
    for letter in found:
        place = first_place(letter) if is_of_node else (retry_topic(group), queue_of(letter))
        if place is None:
            continue
        topic, queue_id = place
        if topic not in topics:
            topics |= node.topics.all()
        if topic not in topics and is_of_node:
            raise TopicNotFoundError(topic)
        if topic not in topics:
            topics[topic] = node.topics.ensure(topic, RETRY_QUEUES, internal=True)
        yield (topic, queue_id % topics[topic].queues), letter


def _topic(node: NodeClient, group: str, topic: str | None) -> TopicConfig:
    name = topic or dead_letter_topic(check_group(group))
    config = node.topics.all().get(name)
    if config is None:
        raise ConfigError(
            f"group {group!r} has no dead letters: there is no topic {name!r}; see: "
            "rocketray dlq list"
        )
    return config


def _newest_reason(view: QueueView) -> str | None:
    newest = max(view.minimum, view.reader.gaps.back(view.maximum, 1))
    try:
        found = view.reader.messages(view.reader.match_tags(newest, view.maximum, None))
    except (CorruptRecordError, OffsetOutOfRangeError):
        return None  # damaged, or removed meanwhile
    return mark(found[0], FAILURE_REASON) if found else None


def _has_files(data: Path, topic: str) -> bool:
    """Return whether a known topic can be read: its first message creates the files."""
    return (shard_directory(data, topic, 0) / CONTROL_PAGE).is_file()


def _letters_of(
    data: Path, group: str, topic: str, subscription: Subscription, start: int
) -> Iterator[StoredMessage]:
    """Yield the matching letters of *group* from *start* on; one block of them is in memory.

    In a shared topic each letter names its group.
    """
    if not _has_files(data, topic):
        return
    is_own = topic == dead_letter_topic(group)
    matcher = MessageFilter(subscription)
    tags = subscription.exact_tags
    with open_queues(data, topic) as views:
        view = views[0]
        for first in range(max(start, view.minimum), view.maximum, RECORDS_MAX):
            end = min(first + RECORDS_MAX, view.maximum)
            entries, _ = scan_block(matcher, view.reader, first, end)
            if tags and len(entries):
                entries = entries.select(view.reader.have_tags(entries, tags))
            for letter in view.reader.messages(entries):
                if is_own or mark(letter, GIVEN_UP_BY) == group:
                    yield letter


def _batches(
    found: Iterable[tuple[Place, StoredMessage]],
) -> Iterator[tuple[Place, list[StoredMessage]]]:
    """Yield batches that a queue accepts: of one transaction state, and not too large."""
    batch: list[StoredMessage] = []
    target: Place | None = None
    size = 0
    for place, letter in found:
        alike = not batch or (letter.sys_flag ^ batch[0].sys_flag) & TRANSACTION == 0
        is_full = len(batch) == _BATCH_MAX or size >= _BATCH_BYTES
        if target is not None and (place != target or not alike or is_full):
            yield target, batch
            batch, size = [], 0
        target = place
        batch.append(letter)
        size += len(letter.body)
    if target is not None:
        yield target, batch


def _again(letter: StoredMessage, topic: str) -> ForwardedMessage:
    kept = {name: text for name, text in letter.properties.items() if name not in DELAY_PROPERTIES}
    kept.pop(GIVEN_UP_BY, None)
    kept.pop(FAILURE_REASON, None)
    if topic.startswith(RETRY_PREFIX):
        kept.setdefault(RETRY_TOPIC, letter.topic)
    else:  # the topic gets it for the first time
        for name in (RETRY_TOPIC, RETRY_QUEUE_ID, ORIGIN_MESSAGE_ID):
            kept.pop(name, None)
    kept[REDRIVEN_FROM] = letter.offset_message_id
    return ForwardedMessage.of(letter, topic=topic, properties=kept, reconsume_times=0)


def _is_stored(node: NodeClient, journal: Journal, group: str) -> bool:
    """Return whether the batch that was being sent is stored in its target."""
    with closing(tail_of(node, *(journal.target or (retry_topic(group), 0)))) as tail:
        offset = max(journal.looked_from, tail.minimum())
        while found := tail.read(offset, _BATCH_MAX):
            if any(one.properties.get(REDRIVEN_FROM) == journal.first_id for one in found):
                return True
            offset = found[-1].queue_offset + 1  # behind gaps, too
        return False


@contextmanager
def _alone(data: Path, topic: str) -> Iterator[None]:
    """Exclude other redrives of the topic."""
    path = _journal_path(data, topic).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = SYSTEM_FILES.lock(path, b"")
    except BlockingIOError:
        raise StoreLockedError(
            f"another redrive of {topic} is running; wait until it ends"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _journal_path(data: Path, topic: str) -> Path:
    return config_directory(data) / "redriven" / f"{topic}.json"


def _ranges(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as pairs: the first of a run, and the number after its last."""
    runs = np.split(offsets, np.flatnonzero(np.diff(offsets) != 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]
