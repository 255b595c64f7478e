"""The settings of a store of ours whose ``store.json`` was lost or damaged.

- Sizes are those of the files. Where there is no file, and for the index, whose size has several
  divisions into slots and entries, they are those of *models*: settings of other stores of the
  node. The first model whose files would have the same sizes counts.
- The store host is known to the node's catalog, or given. Each file of the log begins with a record
  that has it, too. If one disagrees, the settings are refused: the directory is another store's.

RocketMQ's own directories have no settings; importing/foreign.py derives theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.base.config import StoreConfig
from rocketray.errors import ConfigError, CorruptRecordError, StoreError, StoreVersionError
from rocketray.store.files.store_settings import is_foreign, read_settings, usual_size
from rocketray.store.index.index_division import entries_beside, is_division
from rocketray.store.index.index_file import index_file_bytes
from rocketray.store.index.key_index import index_paths
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.log.log_walk import walk

_OURS = ("store.json", "stopped.json", "recovered.json", "control")  # RocketMQ has none of them


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of the files of each kind, 0 without files."""

    log: int
    queue: int
    ext: int
    index: int

    def agree(self, model: StoreConfig) -> bool:
        """Return whether a store with the settings *model* has files of these sizes."""
        return (
            self.log in (0, model.commit_log_segment_bytes)
            and self.queue in (0, model.consume_queue_segment_entries * ENTRY_BYTES)
            and self.ext in (0, model.consume_queue_ext_segment_bytes)
            and self.index in (0, index_file_bytes(model.index_hash_slots, model.index_entries))
        )


def has_lost_settings(directory: Path) -> bool:
    """Return whether *directory* is a store of ours without valid settings.

    Raises:
        StoreVersionError: a newer rocketray wrote them.
    """
    if is_foreign(directory):
        return any((directory / name).exists() for name in _OURS)
    try:
        read_settings(directory)
    except StoreVersionError:
        raise
    except StoreError:
        return True
    return False


def find_settings(
    directory: Path,
    store_host: tuple[str, int],
    models: Sequence[StoreConfig],
    *,
    index_hash_slots: int | None = None,
) -> StoreConfig:
    """Return the settings of *directory*, from the sizes of its files and the first of *models*.

    Raises:
        ConfigError: the number of hash slots is unknown, or cannot be *index_hash_slots*.
        StoreError: a size cannot be that of such files.
    """
    index = index_paths(directory / "index")
    sizes = _Sizes(
        usual_size(directory.glob("commitlog/*")),
        usual_size(directory.glob("consumequeue/*/*/*")),
        usual_size(directory.glob("consumequeue_ext/*/*/*")),
        usual_size(index),
    )
    if sizes.queue % ENTRY_BYTES:
        raise StoreError(
            f"{directory / 'consumequeue'}: a file of {sizes.queue} bytes cannot be a queue's, "
            f"whose entries have {ENTRY_BYTES} bytes; restore it from a copy"
        )
    model = next(filter(sizes.agree, models), models[0])
    slots, entries = _division(directory / "index", sizes, model, models, index_hash_slots)
    return replace(
        model,
        commit_log_segment_bytes=sizes.log or model.commit_log_segment_bytes,
        consume_queue_segment_entries=(
            sizes.queue // ENTRY_BYTES or model.consume_queue_segment_entries
        ),
        consume_queue_ext=sizes.ext > 0,
        consume_queue_ext_segment_bytes=sizes.ext or model.consume_queue_ext_segment_bytes,
        index_hash_slots=slots,
        index_entries=entries,
        store_host=store_host,
    )


def check_records(directory: Path, config: StoreConfig, queue: tuple[str, int] | None) -> None:
    """Check that the log of *directory* has *config*'s store host; of *queue*, if it is known.

    Raises:
        ConfigError: a record has another one, or is one of another queue.
    """
    for host, topic, queue_id in _first_records(directory, config):
        if host != config.store_host:
            raise ConfigError(
                f"{directory}: its records have store host {_text(host)} and not "
                f"{_text(config.store_host)}, so they are those of another store; nothing was "
                "changed: move the directory to where it belongs, or if it belongs here, give "
                f"--store-host {_text(host)}"
            )
        if queue is not None and (topic, queue_id) != queue:
            raise ConfigError(
                f"{directory}: its records are those of queue {topic}/{queue_id}; nothing was "
                "changed: move the directory to where it belongs"
            )


def _division(
    index: Path,
    sizes: _Sizes,
    model: StoreConfig,
    models: Sequence[StoreConfig],
    hash_slots: int | None,
) -> tuple[int, int]:
    """Return the numbers of slots and entries of the index files."""
    if hash_slots is not None and sizes.index:
        if not is_division(sizes.index, hash_slots):
            raise ConfigError(
                f"{index}: its files of {sizes.index} bytes cannot have {hash_slots} hash slots; "
                "give another number with --max-hash-slots, or none"
            )
        return hash_slots, entries_beside(sizes.index, hash_slots)
    for config in (model, *models):
        division = config.index_hash_slots, config.index_entries
        if sizes.index in (0, index_file_bytes(*division)):
            return division
    raise ConfigError(
        f"{index}: its files have {sizes.index} bytes, as no other store of the node, so their "
        "number of hash slots is unknown; nothing was changed: give it with --max-hash-slots, or "
        "move the directory away, and keys are indexed again"
    )


def _first_records(
    directory: Path, config: StoreConfig
) -> Iterator[tuple[tuple[str, int], str, int]]:
    """Yield store host, topic and queue id of the first whole record of each file of the log."""
    log = CommitLog(
        directory / "commitlog",
        config.commit_log_segment_bytes,
        config.store_host,
        read_only=True,
    )
    log.trust_end(log.files.end)
    with closing(log.files):
        for start in log.files.starts:
            try:
                offset = next((at for at, _, _ in walk(log.files, start, verify=True)), None)
                message = None if offset is None else log.message(offset)
            except CorruptRecordError:
                continue  # a damaged file; the recovery that follows reports it
            if message is not None:
                yield message.store_host, message.topic, message.queue_id


def _text(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"
