"""The settings of a RocketMQ broker's store, inferred from its files: it has no ``store.json``.

- The sizes of log, queue and ext files are their lengths.
- The number of hash slots of an index file does not follow from its length. It is RocketMQ's
  default if the file agrees with it, else the result of index_division.py. If that finds none, or
  several numbers, keys cannot be looked up until the caller gives the number of hash slots.
- Stores whose queues are in RocksDB, and stores with batch queues, are refused, because their
  queues are not in the files that are read here. Compaction files are copies and are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES, StoreConfig
from rocketray.errors import ConfigError, CorruptRecordError, OffsetOutOfRangeError, StoreError
from rocketray.hashing import index_key_hash
from rocketray.store.index.index_division import (
    SlotCounts,
    entries_beside,
    is_division,
    slots_that_agree,
    smallest_division,
)
from rocketray.store.index.key_index import index_paths
from rocketray.store.log.commit_log import CommitLog

SlotsFrom = Literal["nothing", "caller", "default", "files", "unknown"]
_Slots = tuple[int, SlotsFrom, tuple[str, ...]]
"""The number of hash slots, and its source and warnings as in :class:`ForeignSettings`."""
_DEFAULT_SLOTS = (5_000_000, StoreConfig().index_hash_slots)  # maxHashSlotNum, and ours
_USUAL_ENTRIES_PER_SLOT = 4  # maxIndexNum is 20 million
_SHOWN_COUNTS = 5  # of numbers of slots that agree alike, in a warning
_END_OF_LOG = 1 << 62  # beyond any record: files are read without a search for the end


@dataclass(frozen=True, slots=True)
class ForeignSettings:
    """The settings for opening a broker's directory, and the source of the number of hash slots.

    ``slots_from`` is ``nothing`` for a store without keys, and ``unknown`` if none or several
    numbers agree with the files. ``warnings`` are sentences for the user.
    """

    config: StoreConfig
    slots_from: SlotsFrom
    warnings: tuple[str, ...] = ()

    def check_keys(self) -> None:
        """Raise :class:`ConfigError` when keys cannot be looked up."""
        if self.slots_from == "unknown":
            raise ConfigError(self.warnings[0])


def read_foreign_settings(
    directory: Path, *, index_hash_slots: int | None = None
) -> ForeignSettings:
    """Return the settings of the broker that wrote *directory*; *index_hash_slots* if known.

    Raises:
        StoreError: its queues are of an unsupported kind, or its log is elsewhere.
        ConfigError: an index file cannot have *index_hash_slots*.
    """
    _refuse_other_kinds(directory)
    usual = StoreConfig()
    log_bytes = _usual_size(directory.glob("commitlog/*")) or usual.commit_log_segment_bytes
    queue_bytes = _usual_size(directory.glob("consumequeue/*/*/*"))
    if queue_bytes % CONSUME_QUEUE_ENTRY_BYTES:
        raise StoreError(
            f"{directory / 'consumequeue'}: a file of {queue_bytes} bytes cannot be a queue's, "
            f"whose entries have {CONSUME_QUEUE_ENTRY_BYTES} bytes; restore it from a copy"
        )
    index = index_paths(directory / "index")
    index_bytes = _usual_size(index)
    index = [path for path in index if path.stat().st_size == index_bytes]
    if index:
        slots, source, warnings = _find_slots(directory, index, log_bytes, index_hash_slots)
        entries = entries_beside(index_bytes, slots)
    else:
        slots, source, warnings = index_hash_slots or _DEFAULT_SLOTS[0], "nothing", ()
        entries = slots * _USUAL_ENTRIES_PER_SLOT
    ext_bytes = _usual_size(directory.glob("consumequeue_ext/*/*/*"))
    config = StoreConfig(
        commit_log_segment_bytes=log_bytes,
        consume_queue_segment_entries=(
            queue_bytes // CONSUME_QUEUE_ENTRY_BYTES or usual.consume_queue_segment_entries
        ),
        consume_queue_ext=bool(ext_bytes),
        consume_queue_ext_segment_bytes=ext_bytes or usual.consume_queue_ext_segment_bytes,
        index_hash_slots=slots,
        index_entries=entries,
    )
    return ForeignSettings(config, source, warnings)


def _refuse_other_kinds(directory: Path) -> None:
    log = directory / "commitlog"
    if (directory / "shards").is_dir():
        raise StoreError(
            f"{directory} is a node's data directory; give the store of one of its queues, "
            f"{directory}/shards/TOPIC/0"
        )
    if not log.is_dir():
        raise StoreError(
            f"{directory} has no commitlog directory; a broker whose storePathCommitLog names "
            "another place, or several, keeps its log there: bring all its files into "
            f"{log}, in a copy"
        )
    starts = sorted(int(path.name) for path in log.iterdir() if path.name.isdecimal())
    sizes = {following - start for start, following in pairwise(starts)}
    if len(sizes) > 1 or (sizes and sizes != {_usual_size(log.iterdir())}):
        raise StoreError(
            f"{log}: files are missing between {starts[0]:020d} and {starts[-1]:020d}; a broker "
            f"with several storePathCommitLog paths spreads them: bring all into {log}, in a copy"
        )
    if any((directory / "consumequeue").glob("MANIFEST-*")):
        raise StoreError(
            f"{directory} keeps its queues in RocksDB (storeType=defaultRocksDB), which is not "
            "supported; let the broker export them to files, or read the messages with a consumer"
        )
    if any(path.is_file() for path in (directory / "batchconsumequeue").glob("*/*/*")):
        raise StoreError(
            f"{directory} has batch queues (batchconsumequeue, queue.type=BatchCQ), which are not "
            "supported; read their topics with a RocketMQ consumer"
        )


def _find_slots(
    directory: Path, index: list[Path], log_bytes: int, hash_slots: int | None
) -> _Slots:
    length = index[0].stat().st_size
    if not is_division(length, smallest_division(length)):
        raise StoreError(f"{index[0]} has {length} bytes and is not an index file; move it away")
    if hash_slots is not None and not is_division(length, hash_slots):
        raise ConfigError(
            f"{index[0]} has {length} bytes and cannot have {hash_slots} hash slots: 40 bytes, 4 a "
            "slot and 20 an entry must fill it; give the broker's maxHashSlotNum"
        )
    log = CommitLog(directory / "commitlog", log_bytes, StoreConfig().store_host, read_only=True)
    log.trust_end(_END_OF_LOG)

    def key_hashes(physical_offset: int) -> frozenset[int] | None:
        try:
            message = log.message(physical_offset)
        except (CorruptRecordError, OffsetOutOfRangeError):
            return None
        keys = (*message.stored_keys, message.unique_key or "")
        return frozenset(index_key_hash(f"{message.topic}#{key}") for key in keys if key)

    try:
        if hash_slots is not None:
            agreed = slots_that_agree(index, key_hashes, only=hash_slots)
            wrong = agreed.has_entries and not agreed.counts
            warning = f"{index[0].parent}: its entries do not agree with {hash_slots} hash slots"
            return hash_slots, "caller", (warning,) if wrong else ()
        for default in filter(lambda count: is_division(length, count), _DEFAULT_SLOTS):
            if slots_that_agree(index, key_hashes, only=default).counts:
                return default, "default", ()
        agreed = slots_that_agree(index, key_hashes)
        if not agreed.counts and agreed.has_entries:  # one damaged file prevents agreement of all
            alone = [slots_that_agree([path], key_hashes).counts for path in index]
            commonest = Counter(counts[0] for counts in alone if len(counts) == 1).most_common(1)
            counts = tuple(count for count, _ in commonest)
            agreed = SlotCounts(counts, all_agree=False, has_entries=True)
        return _inferred(index[0].parent, length, agreed)
    finally:
        log.files.close()


def _inferred(index: Path, length: int, agreed: SlotCounts) -> _Slots:
    """Infer the slots from the files' content; without evidence use the smallest number."""
    if len(agreed.counts) == 1:
        warning = f"{index}: some entries do not agree with the {agreed.counts[0]} hash slots"
        doubts = () if agreed.all_agree else (f"{warning} that nearly all point to",)
        return agreed.counts[0], "files", doubts
    if not agreed.has_entries:
        return smallest_division(length), "nothing", ()
    shown = ", ".join(map(str, agreed.counts[:_SHOWN_COUNTS]))
    reason = f"{shown} hash slots agree alike" if shown else "no number agrees with their entries"
    warning = (
        f"{index}: the number of hash slots is unknown ({reason}); to look keys up, give the "
        "broker's maxHashSlotNum with --max-hash-slots"
    )
    return smallest_division(length), "unknown", (warning,)


def _usual_size(paths: Iterable[Path]) -> int:
    """Return the size of most of the files *paths*, the largest on a tie; 0 without files.

    The others were cut short, or a crash came before their size was durable.
    """
    sizes = Counter(
        path.stat().st_size for path in paths if path.name.isdecimal() and path.is_file()
    )
    return max(sizes, key=lambda size: (sizes[size], size), default=0)
