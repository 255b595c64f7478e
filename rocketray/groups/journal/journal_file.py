"""The journals of groups on disk: DATA/config/groupJournal/<group>.journal, one line an entry.

A line is ``<CRC-32 of the text, 8 hexadecimal digits> <text>``. The text of the first line is
``{"journal":"group","version":1}``, of each other an entry as JSON (group_journal.py). Entries are
appended and synced. A journal that became too long is rewritten, and the new file replaces it.

Damage, each case of which is logged; the entries lost by it are unknown afterwards:
  - A line that was unfinished when its writer died describes nothing that took effect, and is cut.
  - A line damaged in another way is cut, with all behind it.
  - A file with another header, or of a later version, is renamed with the suffix ``.unreadable``.
"""

from __future__ import annotations

import errno
import logging
import os
import zlib
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

import orjson

from rocketray.base.file_form import FileForm
from rocketray.base.whole_file import replace_file
from rocketray.runtime.files.state_files import remove_half_written

from .group_journal import (
    BYTES_MAX,
    ENTRY_MAX_BYTES,
    GroupJournal,
    GroupJournals,
    JournalEntry,
    decode_entry,
    encode_entry,
)

_LOG = logging.getLogger(__name__)
_SUFFIX = ".journal"
_FORM = FileForm("config/groupJournal/GROUP.journal")
_HEADER = orjson.dumps({"journal": "group", "version": _FORM.version})
_CRC_CHARS = 8
_LINE_MAX_BYTES = _CRC_CHARS + 1 + ENTRY_MAX_BYTES + 1
_FILE_MAX_BYTES = 32 * BYTES_MAX  # BYTES_MAX leaves out the STATE entries


class JournalFiles:
    """The directory of the journals, written by one coordinator."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> dict[str, GroupJournal]:
        """Load all journals, by group; remove the half-written files of a writer that died."""
        remove_half_written(self._directory)
        return {
            path.name.removesuffix(_SUFFIX): self._read(path)
            for path in sorted(self._directory.glob(f"*{_SUFFIX}"))
        }

    def save(self, journals: GroupJournals) -> None:
        """Write all unsaved entries; raise OSError if that fails."""
        for group, unsaved in journals.unsaved().items():
            if unsaved.is_whole:
                self._replace(group, unsaved.entries)
            else:
                self._append(group, unsaved.entries)
            journals.saved(group)
        for group in journals.forgotten():
            self._path(group).unlink(missing_ok=True)

    def _path(self, group: str) -> Path:
        return self._directory / f"{group}{_SUFFIX}"

    def _append(self, group: str, entries: Sequence[JournalEntry]) -> None:
        path = self._path(group)
        if not path.exists():
            self._replace(group, entries)
            return
        lines = b"".join(_line(encode_entry(entry)) for entry in entries)
        # A buffer would be written when the file is closed, behind the truncation.
        with path.open("r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                _write(file, lines)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)  # the next attempt appends them again
                raise

    def _replace(self, group: str, entries: Sequence[JournalEntry]) -> None:
        texts = (_HEADER, *map(encode_entry, entries))
        replace_file(self._path(group), b"".join(map(_line, texts)))

    def _read(self, path: Path) -> GroupJournal:
        with path.open("rb") as file:
            header = file.readline(_LINE_MAX_BYTES)
            is_too_large = path.stat().st_size > _FILE_MAX_BYTES
            if is_too_large or header != _line(_HEADER):
                aside = path.replace(path.with_name(path.name + ".unreadable"))
                _LOG.warning(
                    "%s %s; it is kept as %s, and explanations cover only the time from now on",
                    path,
                    f"is larger than {_FILE_MAX_BYTES:,} bytes"
                    if is_too_large
                    else "is not a journal of this version",
                    aside.name,
                )
                return GroupJournal(is_cut=True, is_certain=False)
            entries: list[JournalEntry] = []
            while line := file.readline(_LINE_MAX_BYTES):
                try:
                    entries.append(decode_entry(_text(line)))
                except ValueError as error:
                    is_unfinished = not line.endswith(b"\n") and not file.read(1)
                    _LOG.warning(
                        "%s is truncated after entry %d: %s", path, len(entries),
                        "the next one is incomplete" if is_unfinished else error,
                    )  # fmt: skip
                    return GroupJournal(entries, is_cut=True, is_certain=is_unfinished)
        return GroupJournal(entries)


def _write(file: FileIO, data: bytes) -> None:
    if file.write(data) != len(data):  # Linux writes a part if the disk is full behind it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(text: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _text(line: bytes) -> bytes:
    """Return the text of a line; raise ValueError if it is damaged or has no end."""
    text = line[_CRC_CHARS + 1 :].removesuffix(b"\n")
    if not line.endswith(b"\n") or line[_CRC_CHARS : _CRC_CHARS + 1] != b" ":
        raise ValueError("an entry has no end, or is too long")
    if line != _line(text):
        raise ValueError("its checksum is wrong")
    return text
