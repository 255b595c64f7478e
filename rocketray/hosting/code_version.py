"""The version of an app's code: a digest of the files that it was imported from.

These are the files of modules that were loaded, in the directory that the app's module is imported
from, or of its package if it is installed. Other files, such as data that a module reads, and
modules that are imported later do not count. The names of the files are relative, so an archive of
the code has the same version as the directory that it was made of.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocketray.topology.app.own_code import is_installed

_SHOWN_DIGITS = 8  # of 64: enough to tell the versions of one app apart
_FILES_MAX = 2000  # their names are in each status of each host


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """The digest of *files* in a directory, and when they were loaded."""

    digest: str
    loaded_ms: int
    directory: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return self.digest[:_SHOWN_DIGITS]

    def is_same(self, other: CodeVersion | None) -> bool:
        return other is not None and other.digest == self.digest

    def now(self) -> str:
        """Return the digest that the files have now; a missing one counts as changed."""
        return _digest(Path(self.directory), self.files)


def code_version(path: str, now_ms: int) -> CodeVersion:
    """Return the version of the app at *path*, ``"module:app"``, which was just imported."""
    from .app_path import source_of  # noqa: PLC0415 - Faust; a version is shown without it

    source = source_of(path)
    if source is not None:
        directory = source.directory
    else:
        module = sys.modules[path.partition(":")[0].partition(".")[0]]
        directory = Path(str(module.__file__)).parent
    own = {
        str(file.relative_to(directory))
        for file in _loaded()
        if file.is_relative_to(directory) and (source is None or not is_installed(file))
    }
    files = tuple(sorted(own)[:_FILES_MAX])
    return CodeVersion(_digest(directory, files), now_ms, str(directory), files)


def _loaded() -> Iterable[Path]:
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield Path(file).absolute()


def _digest(directory: Path, files: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in files:
        content = b""
        with suppress(OSError):
            # A missing file counts as an empty one, which changes the digest.
            content = (directory / name).read_bytes()
        for part in (name.encode(), content):
            # With its length, so that a part cannot end in what the next one begins with.
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()
