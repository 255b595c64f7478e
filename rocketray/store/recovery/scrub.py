"""Reading a store again in the background, from the disk: damage that no reader has met yet.

A pass reads the log from its first file to the last one that is *cold*: flushed as a whole, and no
longer written. Every record is checked as by verify.py: whole, in its place, with its checksums,
and with the entry of its queue that points to it. Keys, bitmaps and the files that are being
written are not read.

Pure but for its file system: its owner calls :meth:`Scrubber.step`, for the next few hundred KiB,
as often as it likes. So neither time nor threads are needed here.

Invariants
  1. It reads what the disk has, and changes no page in memory (files/uncached.py).
  2. What it says holds also while the store is written: a cold file never changes until it is
     removed, the log's before the queues'. A problem counts if a second read finds it too, and the
     log file is still there.
  3. Damage stays until a later pass finds its file whole, or gone, or a repair has reported it.
  4. A pass that was interrupted continues with the log file in which it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.base.config import StoreConfig
from rocketray.base.file_form import UnknownVersionError
from rocketray.errors import StoreError
from rocketray.kernels.layout import MAGIC, MAGIC_V1, RECORD_MIN_BYTES, TAGS_CODE_EXT_MAX
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file_queue import segment_name
from rocketray.store.files.uncached import DISK_BLOCK_BYTES
from rocketray.store.formats.record import BLANK_BYTES, is_blank
from rocketray.store.log.log_blocks import LogBlock, read_block
from rocketray.store.queues.consume_queue import ENTRY

from .problem import Problem
from .scrub_progress import ScrubProgress, read_progress, write_progress

PASS_INTERVAL_MS = 24 * 3_600_000
"""How long after a pass the next one begins."""
_STEP_BYTES = 256 * 1024  # at 1 MiB a second four steps; the rate is kept between them
_SHOWN_OF_A_FILE = 20  # problems; a torn file has as many as it has records
_DAMAGE_MAX = 1000  # problems of a store, of some 100 bytes in scrub.json
_MAGIC_BEGIN = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # V2 differs in the last byte
_LOG = logging.getLogger(__name__)
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _LogFile:
    """A file of the log; records are checked up to the offset ``end``."""

    start: int
    end: int
    file_end: int


@dataclass(slots=True)
class _Part:
    """Bytes of the log from the offset ``start`` on."""

    start: int
    data: _Bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Scrubber:
    """Passes through one store, one at a time. For one thread at a time."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        *,
        clock_ms: Callable[[], int],
        is_foreign: bool = False,
        is_written: bool = True,
        keeps: bool = True,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Continue the pass of ``scrub.json``; without *keeps* begin one, and write nothing.

        A store that is not *is_written* by any process is read to its end, its last file too.
        """
        self._directory = directory
        self._config = config
        self._clock_ms = clock_ms
        self._is_foreign = is_foreign
        self._is_written = is_written
        self._keeps = keeps
        self._file_system = file_system
        self.progress = ScrubProgress()
        """How far it is, and the damage; its position is that of the next record."""
        try:
            progress = read_progress(file_system, directory)
            self.progress = progress if keeps else ScrubProgress(lost=progress.lost)
        except UnknownVersionError as error:
            _LOG.warning("how far the store is verified is not kept: %s", error)
            self._keeps = False
        self.all_bytes = 0
        """The size of all files of the pass, when it began its current file."""
        self.done_bytes = 0
        """How much of them it has read."""
        self._file: _LogFile | None = None
        self._found: list[Problem] = []  # in the current file
        self._read_bytes = 0  # in the current step

    def is_due(self, begin: int, end: int) -> bool:
        """Return whether there is something to read now; looks at no file.

        The log begins at *begin*, and is flushed up to *end*.
        """
        if self.progress.begun_ms is not None:
            return True
        verified_ms = self.progress.verified_ms
        is_late = verified_ms is None or not (
            0 <= self._clock_ms() - verified_ms < PASS_INTERVAL_MS
        )
        return is_late and end - begin >= self._config.commit_log_segment_bytes

    def step(self, end: int) -> int | None:
        """Check some of the log up to the flushed offset *end*; return how many bytes were read.

        None when the pass has read everything.
        """
        self._read_bytes = 0
        if self._file is None:
            self._file = self._next_file(end)
        if self._file is None:
            self._end_pass()
            return None
        file, at = self._file, self.progress.position
        behind, problems = self._look(file, at)
        if problems:
            # Only what a second read finds, too, is damage of the disk (invariant 2).
            behind, again = self._look(file, at)
            # Retention removes a file while it is read, its entries before it.
            if not again and self._file_system.exists(self._directory / _name_of(file)):
                _LOG.warning("%s: %s; a second read did not find it", self._directory, problems[0])
            self._note(file, again)
        self.progress = replace(self.progress, position=behind)
        self.done_bytes += behind - at
        if behind >= file.end:
            self._end_file(file)
        return self._read_bytes

    def _next_file(self, end: int) -> _LogFile | None:
        """Return the file to read next, and begin a pass if none is under way."""
        size = self._config.commit_log_segment_bytes
        names = self._file_system.names(self._directory / "commitlog")
        # 20 digits, as segment_name gives them.
        starts = [int(name) for name in names if len(name) == 20 and name.isdecimal()]
        if self._is_written:
            starts = [start for start in starts if start + size <= end]
        starts = [start for start in starts if start < end]
        position = self.progress.position
        if self.progress.begun_ms is None and starts:
            position = starts[0]
            begun = replace(self.progress, begun_ms=self._clock_ms(), position=position)
            self.progress = begun
        left = [start for start in starts if start + size > position]
        self.all_bytes = sum(min(start + size, end) - start for start in starts)
        if not left:
            return None
        self.done_bytes = sum(size for start in starts if start < left[0])
        self._found = []
        self.progress = replace(self.progress, position=left[0])
        return _LogFile(left[0], min(left[0] + size, end), left[0] + size)

    def _end_file(self, file: _LogFile) -> None:
        """Keep what was found in *file*, and what is known of others that are still there."""
        name = _name_of(file)
        others = [
            problem
            for problem in self.progress.damage
            if problem.file != name and self._file_system.exists(self._directory / problem.file)
        ]
        self.progress = replace(
            self.progress, position=file.file_end, damage=(*others, *self._found)[:_DAMAGE_MAX]
        )
        self._file = None
        self._save()

    def _end_pass(self) -> None:
        if self.progress.begun_ms is None:
            return
        self.progress = replace(
            self.progress,
            position=0,
            begun_ms=None,
            verified_ms=self._clock_ms(),
            damage=tuple(
                problem
                for problem in self.progress.damage
                if self._file_system.exists(self._directory / problem.file)
            ),
        )
        self._save()

    def _note(self, file: _LogFile, problems: Sequence[Problem]) -> None:
        """Add *problems* to the damage, unless the file was removed meanwhile."""
        if not problems or not self._file_system.exists(self._directory / _name_of(file)):
            return
        room = _SHOWN_OF_A_FILE - len(self._found)
        self._found += problems[:room]
        new = [problem for problem in self._found if problem not in self.progress.damage]
        if new:
            self.progress = replace(
                self.progress, damage=(*self.progress.damage, *new)[:_DAMAGE_MAX]
            )
            self._save()

    def _save(self) -> None:
        if not self._keeps:
            return
        position = self.progress.position if self._file is None else self._file.start
        try:
            write_progress(
                self._file_system, self._directory, replace(self.progress, position=position)
            )
        except (OSError, StoreError) as error:
            _LOG.warning("%s: how far it is verified is not kept: %s", self._directory, error)

    def _look(self, file: _LogFile, at: int) -> tuple[int, list[Problem]]:
        """Check the records from *at* on; return the offset behind them, and the problems."""
        if file.file_end - at < BLANK_BYTES:
            return file.file_end, self._hole(file, at, file.file_end)
        try:
            part, blocks = self._records(file, at)
        except FileNotFoundError:
            return file.end, []  # it was removed
        except OSError as error:
            behind = self._next_record(file, at + 1)
            return behind, self._hole(file, at, behind, f"cannot be read: {error.strerror}")
        if blocks:
            return blocks[-1].end, [*self._entry_problems(file, blocks)]
        if self._is_blank(file, part, at):
            return file.end, []
        behind = self._next_record(file, at + 1)
        return behind, self._hole(file, at, behind)

    def _records(self, file: _LogFile, at: int) -> tuple[_Part, list[LogBlock]]:
        """Return some of the log from *at* on, and its whole records: one at the least, if any."""
        try:
            part = self._read(file, at, _STEP_BYTES)
        except FileNotFoundError:
            raise
        except OSError:
            # To the end of its block, for the next one may be what cannot be read.
            rest = DISK_BLOCK_BYTES - (at - file.start) % DISK_BLOCK_BYTES
            part = self._read(file, at, max(rest, BLANK_BYTES))
        blocks = [*self._blocks(part, at)]
        # A body may have 4 MiB, so a record may be larger than a step.
        size = int.from_bytes(part.data[at - part.start :][:4].tobytes(), "big", signed=True)
        is_one = not self._is_blank(file, part, at)  # what a blank covers holds nothing
        if not blocks and is_one and part.end < at + size <= file.end:
            part = self._read(file, at, size)
            blocks = [*self._blocks(part, at)]
        return part, blocks

    def _is_blank(self, file: _LogFile, part: _Part, at: int) -> bool:
        position = at - part.start
        return position + BLANK_BYTES <= len(part.data) and is_blank(
            part.data, position, file.file_end - part.start
        )

    def _blocks(self, part: _Part, at: int) -> Iterator[LogBlock]:
        is_last = False
        while not is_last:
            block, is_last = read_block(
                part.data, part.start, at - part.start, is_foreign=self._is_foreign
            )
            if len(block):
                yield block
                at = block.end

    def _hole(
        self, file: _LogFile, start: int, end: int, what: str = "have no complete record"
    ) -> list[Problem]:
        if self.progress.knows_as_lost(start, end):
            return []
        return [self._problem(file, start, f"these {end - start} bytes {what}")]

    def _problem(self, file: _LogFile, physical_offset: int, what: str) -> Problem:
        return Problem(_name_of(file), physical_offset - file.start, what)

    def _next_record(self, file: _LogFile, offset: int) -> int:
        """Return where the first whole record from *offset* on begins; else where the file ends."""
        size = _STEP_BYTES
        while offset < file.end:
            try:
                part = self._read(file, offset, size)
            except FileNotFoundError:
                break
            except OSError:
                # Block by block around the place that the disk cannot read, then in steps again.
                if size > DISK_BLOCK_BYTES:
                    size = DISK_BLOCK_BYTES
                else:
                    offset += DISK_BLOCK_BYTES - (offset - file.start) % DISK_BLOCK_BYTES
                continue
            size = _STEP_BYTES
            content = part.data.tobytes()
            magic_at = content.find(_MAGIC_BEGIN, offset - part.start + MAGIC)
            while magic_at >= 0:
                if self._is_record(file, part.start + magic_at - MAGIC):
                    return part.start + magic_at - MAGIC
                magic_at = content.find(_MAGIC_BEGIN, magic_at + 1)
            # The magic code may be divided between two steps.
            offset = max(part.end - MAGIC - len(_MAGIC_BEGIN), offset + 1)
            if part.end >= file.end or part.end <= offset:  # or it was cut short
                break
        return file.end

    def _is_record(self, file: _LogFile, start: int) -> bool:
        try:
            head = self._read(file, start, 4)
            head_size = head.data[start - head.start :][:4].tobytes()
            size = int.from_bytes(head_size, "big", signed=True)
            if not RECORD_MIN_BYTES <= size <= file.end - start:
                return False
            part = self._read(file, start, size)
        except OSError:
            return False
        return any(True for _ in self._blocks(part, start))

    def _entry_problems(self, file: _LogFile, blocks: Sequence[LogBlock]) -> Iterator[Problem]:
        for block in blocks:
            for topic, queue_id, chosen in block.by_queue():
                good = self._have_entries(topic, queue_id, chosen)
                for row in np.flatnonzero(~good)[:_SHOWN_OF_A_FILE].tolist():
                    start = int(chosen.physical_offsets[row])
                    if not self.progress.knows_as_lost(start, start + int(chosen.sizes[row])):
                        what = (
                            f"the record has no entry at offset {chosen.queue_offsets[row]} of "
                            f"queue {topic}/{queue_id}"
                        )
                        yield self._problem(file, start, what)

    def _have_entries(self, topic: str, queue_id: int, block: LogBlock) -> npt.NDArray[np.bool_]:
        """Return which records of *block*, all of one queue, have their entry."""
        good: npt.NDArray[np.bool_] = np.zeros(len(block), np.bool_)
        ends = np.flatnonzero(np.diff(block.queue_offsets) != 1) + 1
        directory = self._directory / "consumequeue" / topic / str(queue_id)
        for first, stop in zip([0, *ends.tolist()], [*ends.tolist(), len(block)], strict=True):
            rows = slice(first, stop)
            entries = self._entries(directory, int(block.queue_offsets[first]), stop - first)
            codes = entries["tags_code"].astype(np.int64)
            good[rows] = (
                (entries["physical_offset"] == block.physical_offsets[rows])
                & (entries["size"] == block.sizes[rows])
                & ((codes == block.tags_codes[rows]) | (codes <= TAGS_CODE_EXT_MAX))
            )
        return good

    def _entries(self, directory: Path, first: int, count: int) -> npt.NDArray[np.void]:
        """Return the entries from queue offset *first* on; zeros where there are none."""
        content = np.zeros(count * ENTRY_BYTES, np.uint8)
        file_bytes = self._config.consume_queue_segment_entries * ENTRY_BYTES
        at, end = first * ENTRY_BYTES, (first + count) * ENTRY_BYTES
        while 0 <= at < end:
            start = at - at % file_bytes
            stop = min(end, start + file_bytes)
            try:
                part = self._read_part(directory / segment_name(start), at - start, stop - start)
                content[at - first * ENTRY_BYTES :][: len(part)] = part
            except FileNotFoundError:
                pass
            except OSError as error:
                # Read as zeros, so the records are reported as without their entries.
                _LOG.warning("%s: at %d: %s", directory / segment_name(start), at - start, error)
            at = stop
        return content.view(ENTRY)

    def _read(self, file: _LogFile, at: int, size: int) -> _Part:
        """Return the log from *at* on, *size* bytes if the file has them, and a little before."""
        begin = at - file.start
        begin -= begin % DISK_BLOCK_BYTES
        stop = min(at + size, file.end) - file.start
        content = self._read_part(self._directory / _name_of(file), begin, stop)
        return _Part(file.start + begin, content)

    def _read_part(self, path: Path, start: int, stop: int) -> _Bytes:
        """Return the bytes of a file from *start* to *stop*, fewer at its end."""
        begin = start - start % DISK_BLOCK_BYTES
        content = self._file_system.read_uncached(path, begin, stop - begin)
        self._read_bytes += len(content)
        return content[start - begin :]


def _name_of(file: _LogFile) -> str:
    return f"commitlog/{segment_name(file.start)}"
