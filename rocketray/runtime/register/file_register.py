"""A register in a directory: a file for each key; also on a file system that machines share.

    DIRECTORY/topics/00000000000000000007     a value
    DIRECTORY/topics/.….tmp                   a value that is being written, or a remainder of one

The file system needs hard links, as NFS has them. It makes a directory's changes visible to other
machines at once, or at the latest when these make a change there themselves.

Invariants
  1. A value is written under a temporary name, synced, and then linked to its own. So a key has a
     whole value or none, and of several processes that create it one succeeds.
  2. The register never creates its own directory: an empty one in the place of a file system that
     is not mounted would be an empty register.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rocketray.base.whole_file import sync_directory
from rocketray.errors import ConfigError, RegisterUnavailableError

from .register_keys import VALUE_MAX_BYTES, check_folder, check_key, check_size

_REMAINS_S = 3600.0
"""No process writes a value for so long: older temporary files are those of killed processes."""


class FileRegister:
    """A ``Register`` in a directory that exists; for any thread and any process."""

    def __init__(self, directory: Path) -> None:
        """Use *directory*.

        Raises:
            ConfigError: there is no such directory.
        """
        if not directory.is_dir():
            raise ConfigError(
                f"the register's directory {directory} does not exist; mount its file system, or "
                f"create it before the first start: mkdir -p {directory}"
            )
        self._directory = directory
        self.address = directory.absolute().as_uri()

    def create(self, key: str, value: bytes) -> bool:
        path = self._directory / check_key(key)
        check_size(key, len(value))
        with self._failing():
            self._make(path.parent)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
            try:
                _write(temporary, value)
                is_new = _link(temporary, path)
                _remove_remains(temporary)
            finally:
                temporary.unlink(missing_ok=True)
            sync_directory(path.parent)  # also after an earlier call, in which this one failed
        return is_new

    def read(self, key: str) -> bytes | None:
        path = self._directory / check_key(key)
        with self._failing():
            try:
                with path.open("rb") as file:
                    value = file.read(VALUE_MAX_BYTES + 1)
            except FileNotFoundError:
                # It raises where the file system is not mounted: then the key may well be there.
                self._directory.stat()
                return None
        check_size(key, len(value))
        return value

    def names(self, folder: str) -> list[str]:
        root = self._directory / check_folder(folder)
        with self._failing():
            self._directory.stat()  # no empty list where the file system is not mounted
            return sorted(
                path.relative_to(self._directory).as_posix()
                # Names with a point are values that are being written.
                for path in root.rglob("[!.]*")
                if path.is_file()
            )

    def remove(self, key: str) -> None:
        with self._failing():
            (self._directory / check_key(key)).unlink(missing_ok=True)

    def _make(self, directory: Path) -> None:
        """Create the directories of a key, durably."""
        self._directory.stat()  # first: the register is not created itself (invariant 2)
        if not directory.is_dir():
            self._make(directory.parent)
            directory.mkdir(exist_ok=True)
            sync_directory(directory.parent)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise an error of the file system as one of the register."""
        try:
            yield
        except OSError as error:
            raise RegisterUnavailableError(self.address, str(error)) from error


def _write(path: Path, value: bytes) -> None:
    with path.open("xb") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, path: Path) -> bool:
    """Give the file its second name; return whether the name was free."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        # NFS repeats a call whose answer was lost: then this file has both names.
        return temporary.stat().st_nlink > 1
    return True


def _remove_remains(temporary: Path) -> None:
    """Remove what killed processes left, by the clock of the file system."""
    # The clocks of the machines that share the directory may differ by more than the hour.
    now_s = temporary.stat().st_mtime
    for path in temporary.parent.glob(".*.tmp"):
        with suppress(FileNotFoundError):
            if now_s - path.stat().st_mtime > _REMAINS_S:
                path.unlink()
