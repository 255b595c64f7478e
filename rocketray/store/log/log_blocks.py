"""Reading of a log from one place to its end in blocks of columns, each record verified.

Recovery reads the log this way, without a Python object per record. A record counts if
- it is whole, and in its own place,
- its body matches its CRC,
- its topic is a valid name,
- its property string ends with a separator, as all of ours do; in a log of RocketMQ's the last
  separator may be missing.
Topic and properties have no CRC, unless the store writes one as a property, which is then checked.
A part of them that never reached the disk reads as zeros.

The third field of queue entries in SCHEDULE_TOPIC_XXXX is the due time of a message, not its tags
code: the store time plus the delay of the level in the property ``DELAY``. A message there without
a level has the code of its tag, as everywhere. Source: RocketMQ 5.3.3,
``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.marks import DELAY_LEVEL
from rocketray.base.names import check_stored_topic
from rocketray.base.property_string import PROPERTY_SEPARATOR
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.errors import InvalidNameError
from rocketray.hashing import java_hash_code
from rocketray.kernels.hashing import crc32_spans, hash_spans
from rocketray.kernels.measure import list_records
from rocketray.kernels.properties import match_values
from rocketray.kernels.spans import Field, measure_spans
from rocketray.kernels.texts import hash_record_keys
from rocketray.message import IMPORTED_OFFSET_ID, KEYS, TAGS, UNIQUE_KEY
from rocketray.store.formats.arrow_spans import find_values
from rocketray.store.formats.property_crc import find_crc_mismatches, has_crc_property
from rocketray.store.formats.sys_flag import PREPARED, ROLLBACK, TRANSACTION

from .commit_log import CommitLog
from .log_walk import end_after, next_record

_BLOCK_RECORDS = 8192  # their columns take 1.3 MB
_SECTOR_BYTES = 512  # or a multiple of it
_PROPERTIES_END = ord(PROPERTY_SEPARATOR)
_NAMES = (TAGS, UNIQUE_KEY, KEYS, IMPORTED_OFFSET_ID)
_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_LEVEL_DIGITS_MAX = 10  # of an int32; a longer text is not a level
_END_OF_TIME = 2**63 - 1  # no checksum covers a store time: a damaged one may be any number


@dataclass(frozen=True, slots=True)
class LogBlock:
    """Consecutive whole records of one file; all arrays have the same length.

    ``topic_numbers`` are indexes into ``topics``. The spans of the properties, and in the rows of
    ``key_starts`` and ``key_sizes`` int64[3, n] those of the unique key, of the keys and of the
    offset id from before an import, are positions in ``data``, uint8, the whole file; a size below
    0 is "none".
    """

    data: npt.NDArray[np.uint8]
    topics: list[str]
    topic_numbers: _Int32s
    physical_offsets: _Int64s
    sizes: _Int32s
    queue_ids: _Int32s
    queue_offsets: _Int64s
    sys_flags: _Int64s
    store_timestamps_ms: _Int64s
    tags_codes: _Int64s
    property_starts: _Int64s
    property_sizes: _Int64s
    key_starts: _Int64s
    key_sizes: _Int64s

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def end(self) -> int:
        """The physical offset behind the last record."""
        return int(self.physical_offsets[-1]) + int(self.sizes[-1])

    def only(self, chosen: npt.NDArray[np.bool_]) -> LogBlock:
        """Return the records for which *chosen* is true: this block, if these are all."""
        if chosen.all():  # the rule: a shard's log has one queue
            return self
        columns = [getattr(self, field.name) for field in fields(self)]
        return LogBlock(*columns[:2], *(column[..., chosen] for column in columns[2:]))

    def by_queue(self) -> Iterator[tuple[str, int, LogBlock]]:
        """Yield topic, queue id and records of each queue.

        Records of prepared and rolled back transactions are in none.
        """
        visible = self.sys_flags & PREPARED == 0  # the bit is also set in ROLLBACK
        for number, topic in enumerate(self.topics):
            of_topic = visible & (self.topic_numbers == number)
            for queue_id in np.unique(self.queue_ids[of_topic]).tolist():
                yield topic, queue_id, self.only(of_topic & (self.queue_ids == queue_id))


def read_blocks(log: CommitLog, start: int) -> Iterator[LogBlock]:
    """Yield the whole records from *start*, of a record or of a file, to the first bad one.

    BLANK records are skipped. Reads beyond ``max_offset``: it is found this way.
    """
    offset = end_after(log.files, start)
    while (segment := log.files.file(offset)) is not None:
        position = offset - segment.start
        block, is_last = read_block(
            segment.data, segment.start, position, is_foreign=log.is_foreign
        )
        if len(block):
            yield block
            offset = block.end
        if is_last:
            following = end_after(log.files, offset)
            if following == offset:
                return
            offset = following


def read_past_holes(
    log: CommitLog, start: int, skips: Callable[[int, int, int], bool]
) -> Iterator[LogBlock]:
    """Yield the whole records from *start* on, also those behind a hole that *skips* allows.

    *skips* takes the offset of the hole, and offset and store time of the record behind it.
    """
    following: tuple[int, int] | None = start, 0
    while following is not None:
        at = following[0]
        for block in read_blocks(log, at):
            at = block.end
            yield block
        at = end_after(log.files, at)
        following = next_record(log.files, at)
        if following is not None and not skips(at, *following):
            return


def read_blocks_below(log: CommitLog, end: int) -> Iterator[LogBlock]:
    """Yield the whole records of the log that begin below *end*; holes are skipped."""
    for block in read_past_holes(log, log.min_offset, lambda _, behind, __: behind < end):
        yield block.only(block.physical_offsets < end)


def record_keys(block: LogBlock) -> tuple[_Int32s, _Int64s, _Int64s]:
    """Return hash, physical offset and store time of each key in the index, in log order.

    The order for one record: the unique key, its keys, the imported offset id. Records of rolled
    back transactions have none.
    """
    block = block.only(block.sys_flags & TRANSACTION != ROLLBACK)
    starts, sizes = block.key_starts, block.key_sizes
    # Keys of one character with a blank after each, at most; two more are the unique key and the
    # imported offset id.
    room = int((np.maximum(sizes[1], 0) // 2 + 2).sum())
    hashes, records = np.empty(room, np.int32), np.empty(room, np.int32)
    groups = [(starts[0], sizes[0], starts[1], sizes[1])]
    if (sizes[2] >= 0).any():
        groups.append((starts[2], sizes[2], starts[1], np.full(len(block), -1, np.int64)))
    found_hashes, found_records = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for number, topic in enumerate(block.topics):
        chosen = np.flatnonzero(block.topic_numbers == number)
        for unique_starts, unique_sizes, keys_starts, keys_sizes in groups:
            count = hash_record_keys(
                block.data,
                unique_starts[chosen],
                unique_sizes[chosen],
                block.data,
                keys_starts[chosen],
                keys_sizes[chosen],
                java_hash_code(f"{topic}#"),
                hashes,
                records,
            )
            found_hashes.append(hashes[:count].copy())
            found_records.append(chosen[records[:count]].astype(np.int32))
    all_records = np.concatenate(found_records)
    # Stable: the keys of a record keep their order, as an append puts them.
    order = np.argsort(all_records, kind="stable")
    rows = all_records[order]
    all_hashes = np.concatenate(found_hashes)[order]
    return all_hashes, block.physical_offsets[rows], block.store_timestamps_ms[rows]


def read_block(
    data: npt.NDArray[np.uint8], start: int, position: int, *, is_foreign: bool
) -> tuple[LogBlock, bool]:
    """Return the valid records at *position* of *data*, and whether no valid one follows there.

    *data* are a file of the log, or a part of one that begins with a sector, at the offset *start*.
    """
    n = _BLOCK_RECORDS
    offsets, queue_offsets = np.empty(n, np.int64), np.empty(n, np.int64)
    sizes, queue_ids, crcs = (np.empty(n, np.int32) for _ in range(3))
    n = list_records(data, start, position, offsets, sizes, queue_ids, queue_offsets, crcs)
    spans = np.empty((len(Field), n), np.int64)
    positions = offsets[:n] - start
    # list_records has measured each by the same rules.
    assert measure_spans(data, positions, offsets[:n], sizes[:n], spans) < 0
    topics, topic_numbers = _topics(data, spans)
    good = topic_numbers >= 0
    good &= _bodies_match(data, spans, crcs[:n])
    good &= _properties_end_well(data, spans, is_foreign=is_foreign)
    properties = spans[Field.PROPERTIES_START], spans[Field.PROPERTIES_SIZE]
    good &= ~find_crc_mismatches(data, sizes[:n].astype(np.int64), *properties)
    count = n if good.all() else int(good.argmin())
    starts, lengths = find_values(data, *properties, _NAMES)
    codes = np.empty(n, np.int32)
    hash_spans(data, starts[0], lengths[0], 0, codes)
    tags_codes = codes.astype(np.int64)
    if SCHEDULE_TOPIC in topics:
        rows = np.flatnonzero(topic_numbers == topics.index(SCHEDULE_TOPIC))
        columns = [column[rows] for column in (*properties, spans[Field.STORE_TIMESTAMP])]
        tags_codes[rows] = entry_codes(tags_codes[rows], data, *columns)
    block = LogBlock(
        data,
        topics,
        topic_numbers[:count],
        offsets[:count],
        sizes[:count],
        queue_ids[:count],
        queue_offsets[:count],
        spans[Field.SYS_FLAG, :count],
        spans[Field.STORE_TIMESTAMP, :count],
        tags_codes[:count],
        properties[0][:count],
        properties[1][:count],
        starts[1:, :count],
        lengths[1:, :count],
    )
    return block, count < _BLOCK_RECORDS


def _topics(data: npt.NDArray[np.uint8], spans: _Int64s) -> tuple[list[str], _Int32s]:
    """Return the different topics and the number of each record's; -1 for an invalid name."""
    starts, sizes = spans[Field.TOPIC_START], spans[Field.TOPIC_SIZE]
    topics: list[str] = []
    numbers = np.full(len(starts), -1, np.int32)
    same = np.empty(len(starts), np.bool_)
    unknown = np.ones(len(starts), np.bool_)
    while unknown.any():
        first = int(unknown.argmax())
        name = data[starts[first] : starts[first] + sizes[first]]
        match_values(data, starts, sizes, name, np.array([0, len(name)], np.int64), same)
        # Whatever the kernel finds, so that the loop ends.
        same[first] = True
        unknown &= ~same
        if _is_topic(name.tobytes()):
            numbers[same] = len(topics)
            topics.append(name.tobytes().decode())
        else:
            break  # no record behind a bad one counts
    return topics, numbers


def _is_topic(name: bytes) -> bool:
    try:
        check_stored_topic(name.decode())
    except (UnicodeDecodeError, InvalidNameError):
        return False
    return True


def _bodies_match(
    data: npt.NDArray[np.uint8], spans: _Int64s, crcs: _Int32s
) -> npt.NDArray[np.bool_]:
    actual = np.empty(len(crcs), np.int32)
    crc32_spans(data, spans[Field.BODY_START], spans[Field.BODY_SIZE], actual)
    matching: npt.NDArray[np.bool_] = (actual == crcs) | (spans[Field.BODY_SIZE] == 0)
    return matching


def _properties_end_well(
    data: npt.NDArray[np.uint8], spans: _Int64s, *, is_foreign: bool
) -> npt.NDArray[np.bool_]:
    starts, sizes = spans[Field.PROPERTIES_START], spans[Field.PROPERTIES_SIZE]
    last = data[starts + sizes - 1]  # the byte before the string if it is empty
    ended = last != 0 if is_foreign else last == _PROPERTIES_END
    whole: npt.NDArray[np.bool_] = (sizes == 0) | ended
    if not is_foreign and len(sizes) and sizes.max() >= _SECTOR_BYTES:
        for row in np.flatnonzero(_have_lost_sectors(data, starts, sizes)).tolist():
            # An imported record may have such a run; then it has a CRC, which is checked.
            properties = data[starts[row] : starts[row] + sizes[row]].tobytes()
            whole[row] &= has_crc_property(properties)
    return whole


def _have_lost_sectors(
    data: npt.NDArray[np.uint8], starts: _Int64s, sizes: _Int64s
) -> npt.NDArray[np.bool_]:
    """Return for each span whether a sector in it was never written: it is all zeros.

    What a power failure can take of a property string besides its end; no sent message has such a
    run: senders cannot use U+0000 (message.py).
    """
    first, behind = -(-starts // _SECTOR_BYTES), (starts + sizes) // _SECTOR_BYTES
    lost: npt.NDArray[np.bool_] = np.zeros(len(starts), np.bool_)
    rows = np.flatnonzero(first < behind)
    if len(rows):
        begin, end = int(first[rows].min()), int(behind[rows].max())
        sectors = data[begin * _SECTOR_BYTES : end * _SECTOR_BYTES].reshape(-1, _SECTOR_BYTES)
        lost_before = np.concatenate([[0], np.cumsum(~sectors.any(axis=1))])
        lost[rows] = lost_before[behind[rows] - begin] > lost_before[first[rows] - begin]
    return lost


def entry_codes(
    tags_codes: _Int64s,
    data: npt.NDArray[np.uint8],
    property_starts: _Int64s,
    property_sizes: _Int64s,
    store_timestamps_ms: _Int64s,
) -> _Int64s:
    """Return the codes int64[n] for the entries of records of ``SCHEDULE_TOPIC``.

    ``tags_codes``, ``store_timestamps_ms`` and the spans of the property strings in *data* are
    int64[n].
    """
    starts, sizes = find_values(data, property_starts, property_sizes, [DELAY_LEVEL])
    codes = tags_codes.copy()
    for row, (start, size) in enumerate(zip(starts[0].tolist(), sizes[0].tolist(), strict=True)):
        level = _level(data[start : start + size].tobytes()) if size > 0 else 0
        if level > 0:
            delay = DELAY_LEVELS_MS[min(level, len(DELAY_LEVELS_MS)) - 1]
            codes[row] = min(max(int(store_timestamps_ms[row]) + delay, 0), _END_OF_TIME)
    return codes


def _level(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= _LEVEL_DIGITS_MAX else 0
