"""Fragments: the messages of one task of a staged batch, in a file that no consumer reads.

    DATA/staged/<writer>.<number>.<random>.half     and the same name with .part while it is written

    frames, back to back: packed batches (encoded_batch.py), each for one queue
    footer, JSON: [[topic, queueId, offset, size, crc32, messages], …], the frames
    magic "RRH1" · u32 CRC-32 of the footer · u64 bytes of the footer, little-endian

A fragment was called a half, as the names of the files and the magic still say.

Invariants
  1. A file with the name of a fragment is whole, and on disk.
  2. What is read was written so: a frame and the footer have their CRC-32, and every number is
     checked against the size of the file.
"""

from __future__ import annotations

import json
import os
import re
import struct
import uuid
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from isal.isal_zlib import crc32  # as zlib's, ten times as fast

from rocketray.base.json_fields import Natural, read_value
from rocketray.base.names import QUEUE_COUNT_MAX, check_topic
from rocketray.base.system_topics import WAITING_QUEUES, is_closed_topic
from rocketray.base.whole_file import sync_directory
from rocketray.errors import CorruptRecordError, InvalidNameError, StoreFullError, StreamError
from rocketray.store.retention import FULL

from .state_files import JSON_MAX_BYTES, disk_use

_TRAILER = struct.Struct("<4sIQ")
_MAGIC = b"RRH1"
_BATCH_MAX = 1 << 62  # an i64, and no longer than the 19 digits of a fragment's name
WRITER_FORM = "1 to 100 ASCII letters, digits, _ or -, and begins with a letter or digit"
_WRITER = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_FRAGMENT = re.compile(rf"({_WRITER})\.([0-9]{{1,19}})\.[0-9a-f]{{32}}\.half(\.part)?", re.ASCII)
_PART = ".part"
# Between two looks at the room on the disk: each task that writes may exceed the limit by as much.
_LOOK_BYTES = 64 * 1024 * 1024


class BatchName(NamedTuple):
    """A staged batch: its writer, and its number among those of the writer."""

    writer: str
    number: int


class Fragment(NamedTuple):
    """A whole fragment: the name of its file, its bytes, and its messages."""

    name: str
    size: int
    messages: int


class FragmentFrame(NamedTuple):
    """The messages of a fragment for one queue, as one packed batch, and its place in the file."""

    topic: str
    queue_id: Natural
    offset: Natural
    size: Natural
    crc32: Natural
    messages: Natural


class FragmentSink(Protocol):
    """Takes the bytes of a fragment, wherever its file is."""

    def write(self, content: bytes | memoryview) -> None:
        """Take further bytes."""

    def finish(self) -> None:
        """Give the file its name; it is on disk on return."""

    def discard(self) -> None:
        """Remove what was written, also if that was finished."""


def new_fragment(batch: BatchName) -> str:
    """Return the name of a new fragment of *batch*.

    Raises:
        InvalidNameError: its writer or its number cannot be in the name of a file.
    """
    if re.fullmatch(_WRITER, batch.writer, re.ASCII) is None:
        raise InvalidNameError(f"writer {batch.writer!r:.120}: a name has {WRITER_FORM}")
    if not 0 <= batch.number <= _BATCH_MAX:
        raise InvalidNameError(f"batch {batch.number} of writer {batch.writer}: count from 0")
    return f"{batch.writer}.{batch.number}.{uuid.uuid4().hex}.half"


def batch_of(name: str) -> BatchName | None:
    """Return the batch of a fragment by its file's name, whole or not; None for other names."""
    found = _FRAGMENT.fullmatch(name)
    return BatchName(found[1], int(found[2])) if found else None


def check_fragment(name: str) -> str:
    """Return *name* if it is that of a whole fragment, so it is safe as a path.

    Raises:
        InvalidNameError: it is not.
    """
    if batch_of(name) is None or name.endswith(_PART):
        raise InvalidNameError(f"{name!r:.200} is not the name of a fragment; stage it again")
    return name


class FragmentWriter:
    """Writes one fragment, frame by frame."""

    def __init__(self, name: str, sink: FragmentSink) -> None:
        self._name = check_fragment(name)
        self._sink = sink
        self._frames: list[FragmentFrame] = []
        self._end = 0

    def add(self, topic: str, queue_id: int, frame: bytes | memoryview, messages: int) -> None:
        """Add a packed batch for a queue; a queue gets its batches in this order."""
        size = len(frame)
        self._frames.append(FragmentFrame(topic, queue_id, self._end, size, crc32(frame), messages))
        self._sink.write(frame)
        self._end += size

    def finish(self) -> Fragment:
        """Write the footer; the fragment is whole and on disk on return."""
        footer = json.dumps(self._frames, separators=(",", ":")).encode()
        self._sink.write(footer)
        self._sink.write(_TRAILER.pack(_MAGIC, crc32(footer), len(footer)))
        self._sink.finish()
        size = self._end + len(footer) + _TRAILER.size
        return Fragment(self._name, size, sum(frame.messages for frame in self._frames))

    def discard(self) -> None:
        """Remove what was written."""
        self._sink.discard()


class FragmentFile:
    """The file of a fragment on a disk of this machine: a :class:`FragmentSink`."""

    def __init__(self, directory: Path, name: str) -> None:
        """Begin the file.

        Raises:
            StoreFullError: the disk has no room, now or at a later write. OSError: it cannot be
                written.
        """
        if not directory.exists():
            directory.mkdir(mode=0o700, exist_ok=True)
            sync_directory(directory.parent)  # or a power failure takes the fragments with the name
        self._path = directory / check_fragment(name)
        self._part = directory / (name + _PART)
        self._since_look = _LOOK_BYTES  # so the first check looks
        self._check_room()
        # A frame may have megabytes, and a buffer would copy them once more.
        self._file: BinaryIO = self._part.open("xb", buffering=0)

    def write(self, content: bytes | memoryview) -> None:
        self._since_look += len(content)
        self._check_room()
        left = memoryview(content)
        while left:
            # Without a buffer, Linux may take a part of it, and never more than 2 GiB.
            left = left[self._file.write(left) :]

    def finish(self) -> None:
        # The content is on disk before the name says that it is whole (invariant 1).
        os.fdatasync(self._file.fileno())
        self._file.close()
        self._part.rename(self._path)
        sync_directory(self._path.parent)

    def discard(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def _check_room(self) -> None:
        if self._since_look < _LOOK_BYTES:
            return
        self._since_look = 0
        if disk_use(self._path.parent).reaches(FULL):
            raise StoreFullError(
                f"{self._path.parent}: the disk is full, so nothing more is staged there; free "
                "space, or lower a topic's retention, then run the query again"
            )


def read_frames(directory: Path, fragment: Fragment) -> list[FragmentFrame]:
    """Return the frames of a fragment, in the order in which they were written.

    Raises:
        FileNotFoundError: there is no such file. CorruptRecordError: it is not what was written.
    """
    path = directory / check_fragment(fragment.name)
    with path.open("rb") as file:
        size = path.stat().st_size
        if size != fragment.size or size < _TRAILER.size:
            raise CorruptRecordError(str(path), 0, f"it has {size} bytes, not {fragment.size}")
        file.seek(size - _TRAILER.size)
        magic, checksum, length = _TRAILER.unpack(file.read(_TRAILER.size))
        start = size - _TRAILER.size - length
        # A damaged length must not have gigabytes of frames parsed as JSON.
        if magic != _MAGIC or start < 0 or length > JSON_MAX_BYTES:
            raise CorruptRecordError(str(path), size - _TRAILER.size, "it has no footer")
        file.seek(start)
        footer = file.read(length)
    if crc32(footer) != checksum:
        raise CorruptRecordError(str(path), start, "its footer has another checksum")
    try:
        return _parsed(json.loads(footer), start)
    except (LookupError, TypeError, ValueError, StreamError) as error:
        raise CorruptRecordError(str(path), start, f"its footer: {error}") from None


def read_frame(path: Path, frame: FragmentFrame) -> bytes:
    """Return the packed batch of a frame.

    Raises:
        FileNotFoundError: there is no such file. CorruptRecordError: it is not what was written.
    """
    with path.open("rb") as file:
        file.seek(frame.offset)
        content = file.read(frame.size)
    if len(content) != frame.size or crc32(content) != frame.crc32:
        raise CorruptRecordError(
            str(path), frame.offset, "it has another checksum; remove the file to lose its messages"
        )
    return content


def _parsed(value: list[list[Any]], end: int) -> list[FragmentFrame]:
    frames = [*read_value(tuple[FragmentFrame, ...], value)]
    at = 0
    for frame in frames:
        check_topic(frame.topic)
        # Delayed messages wait in topics of the node; no other one of these is open to a writer.
        if is_closed_topic(frame.topic) and frame.topic not in WAITING_QUEUES:
            raise ValueError(f"topic {frame.topic!r:.200} is the node's own")
        if frame.offset != at or frame.queue_id >= QUEUE_COUNT_MAX:
            raise ValueError(f"frame {frame!r:.200}")
        at += frame.size
    if at != end:
        raise ValueError(f"its frames have {at} bytes, not {end}")
    return frames
