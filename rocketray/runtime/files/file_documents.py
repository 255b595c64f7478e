"""The documents of a cluster: JSON objects that its coordinator keeps, each replaced as a whole.

They are ``topics``, ``disks``, ``moves``, ``groups`` and ``namedFilters``. By default they are
files of the directory on which the coordinator runs, ``DATA/config/NAME.json``, each with a copy
(state_files.py). Else they are in a register (cluster/registered_documents.py), which has
``settings``, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .paths import config_directory
from .state_files import read_state, write_json

_T = TypeVar("_T")


class SavedDocuments(Protocol):
    """The documents of a coordinator, to be read."""

    def load(self, name: str, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
        """Return *parse* of a document, or None if it does not exist.

        Raises:
            StoreError: it is damaged, or of another version.
        """


class Documents(SavedDocuments, Protocol):
    """Where a coordinator keeps its documents; it alone changes them."""

    def save(self, name: str, value: object, *, is_indented: bool = True) -> None:
        """Replace a document; durable on return. A large one is better not *is_indented*.

        Raises:
            StoreError: it is too large. SupersededError: another coordinator has taken over.
            OSError: it cannot be written. RegisterUnavailableError: it may be saved, or not.
        """


class FileDocuments:
    """The documents in a data directory; the holder of its lock uses them."""

    def __init__(self, data: Path) -> None:
        self._directory = config_directory(data)

    def load(self, name: str, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
        """See :class:`Documents`; a damaged file is repaired from its copy."""
        return read_state(self._path(name), parse, owns=True)

    def save(self, name: str, value: object, *, is_indented: bool = True) -> None:
        write_json(self._path(name), value, is_indented=is_indented)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"
