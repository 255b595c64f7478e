"""The code of an app as a zip file, which Ray unpacks on each machine that a host runs on.

It has the files of the directory that the app is imported from, and of all directories below it,
also behind links. Ray keeps the file in memory, and every program on the Ray can read it. So its
size has a limit, and these are left out:

- names that begin with a dot, such as ``.git``, ``.venv`` and ``.env``; and ``__pycache__``;
- virtual environments, whatever their name is;
- what a ``.gitignore`` or ``.rayignore`` names, as Ray reads them;
- data directories, stores, backups, and the app's own directory of tables: no message is uploaded.

The same files result in the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

from rocketray.errors import ConfigError
from rocketray.runtime.files.home import holds_messages

CODE_LIMIT_BYTES = 100 << 20  # of the files; Ray's own limit is 512 MiB for the archive
# Each file is opened here at each start, and unpacked on each machine.
FILE_LIMIT = 10_000
_CACHE = "__pycache__"
_ENVIRONMENT = "pyvenv.cfg"  # the mark of a virtual environment
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can name
# Two modes only, whatever the user's umask is: the same files have to give the same bytes.
_PLAIN, _PROGRAM = stat.S_IFREG | 0o644, stat.S_IFREG | 0o755
_LEAVE_OUT = "name what the app does not need in a file .rayignore there, or move the app"
_Rule = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class CodeArchive:
    """The packed files of *directory*: their number, and their size before they were packed.

    ``left_out`` names the directories with messages or tables that are not in it.
    """

    directory: Path
    file_count: int
    size: int
    left_out: tuple[str, ...]
    content: bytes

    @property
    def digest(self) -> str:
        """The SHA-1 of the content, in hexadecimal; Ray names its archives in the same way."""
        return hashlib.sha1(self.content, usedforsecurity=False).hexdigest()


def pack_code(
    directory: Path, needed: Path, own: Collection[Path] = (), *, heeds_gitignore: bool = True
) -> CodeArchive:
    """Pack the files of *directory*, among them *needed*, the module of the app.

    *own* are directories with data of the app itself. Unless it *heeds_gitignore*, only
    ``.rayignore`` files leave something out.

    Raises:
        ConfigError: there is too much, a file cannot be read, or *needed* is left out.
    """
    files = _Files(directory, own, heeds_gitignore=heeds_gitignore)
    files.add_directory(directory, ())
    if directory in files.with_data:
        raise ConfigError(
            f"{directory} holds messages, which are not uploaded; move the module of the app to a "
            "directory of its own"
        )
    if needed not in files.sizes:
        raise ConfigError(
            f"{needed} is left out of the upload, because a name on its path begins with a dot, or "
            "a .gitignore or .rayignore names it; rename it, or change that file"
        )
    return CodeArchive(
        directory,
        len(files.sizes),
        files.size,
        tuple(str(path.relative_to(directory)) for path in files.with_data),
        _packed(directory, files.sizes),
    )


class _Files:
    """The files that are packed, with their sizes, and the directories with data."""

    def __init__(self, root: Path, own: Collection[Path], *, heeds_gitignore: bool) -> None:
        self._root = root
        self._own = {each.absolute() for each in own}
        self._heeds_gitignore = heeds_gitignore
        self._entered: set[tuple[int, int]] = set()  # links may lead in a circle
        self.sizes: dict[Path, int] = {}
        self.size = 0
        self.with_data: list[Path] = []

    def add_directory(self, directory: Path, rules: Sequence[_Rule]) -> None:
        """Add the files below *directory* that no rule names; raise at a limit."""
        try:
            self._look_into(directory, rules)
        except OSError as error:
            raise _unreadable(Path(error.filename or directory), error) from error

    def _look_into(self, directory: Path, rules: Sequence[_Rule]) -> None:
        found = directory.stat()
        identity = found.st_dev, found.st_ino
        if identity in self._entered or (directory / _ENVIRONMENT).exists():
            return
        self._entered.add(identity)
        if directory in self._own or holds_messages(directory):
            self.with_data.append(directory)
            return
        added = get_excludes_from_ignore_files(directory, include_gitignore=self._heeds_gitignore)
        rules = [*rules, *added]
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            path = directory / entry.name
            if entry.name.startswith(".") or entry.name == _CACHE or any(r(path) for r in rules):
                continue
            if entry.is_dir():
                self.add_directory(path, rules)
            elif entry.is_file():
                self._add_file(path, entry.stat().st_size)

    def _add_file(self, path: Path, size: int) -> None:
        self.sizes[path] = size
        self.size += size
        if self.size > CODE_LIMIT_BYTES:
            raise ConfigError(
                f"the code in {self._root} has more than {CODE_LIMIT_BYTES >> 20} MiB, most of it "
                f"in {self._largest(self.sizes)}; {_LEAVE_OUT} to a directory of its own"
            )
        if len(self.sizes) > FILE_LIMIT:
            raise ConfigError(
                f"the code in {self._root} has more than {FILE_LIMIT} files, most of them in "
                f"{self._largest(dict.fromkeys(self.sizes, 1))}; {_LEAVE_OUT} to a directory of "
                "its own"
            )

    def _largest(self, weights: dict[Path, int]) -> str:
        """Return the entry of the root with the greatest sum."""
        sums: Counter[str] = Counter()
        for path, weight in weights.items():
            sums[path.relative_to(self._root).parts[0]] += weight
        return sums.most_common(1)[0][0]


def _packed(root: Path, files: Collection[Path]) -> bytes:
    content = io.BytesIO()
    # The fastest level: source is small, and the user waits.
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            # Unix's mode is in the upper 16 bits.
            entry.external_attr = (_PROGRAM if os.access(path, os.X_OK) else _PLAIN) << 16
            try:
                archive.writestr(entry, path.read_bytes())
            except (OSError, UnicodeEncodeError) as error:
                raise _unreadable(path, error) from error
    return content.getvalue()


def _unreadable(path: Path, error: Exception) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else error
    return ConfigError(
        f"{path} cannot be packed for the upload: {why}; name it in a file .rayignore beside it, or "
        "make it readable"
    )
