"""The form of a file that rocketray writes: its name, and the version of what is in it.

A JSON file is an object whose key ``version`` has the version, from 1 on. A file without the key is
of version 1: files in RocketMQ's own form have none.

Rules
  1. A key that is added, or gets another meaning, raises the version. A release that does not know
     it would drop it at its next save, so that release refuses the file, and changes nothing.
  2. A release reads all versions up to its own. What an older one lacks is filled in where the file
     is parsed, unless a command converts it, as ``rocketray store upgrade`` does.
  3. Each directory has one file whose version is raised with that of any other: ``directory.json``
     for a data directory, ``manifest.json`` for a backup of one, ``store.json`` for a store. It is
     read before others are opened, and vouches for files that have no version of their own. The
     release that raises it writes nothing in an older directory before ``rocketray store upgrade``.

``tests/data/releases`` has a directory of each release; docs/reference/store.md lists all forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketray.errors import StoreVersionError

_KEY = "version"


class UnknownVersionError(StoreVersionError):
    """A file is of a version that this release does not read; without *place* while it is parsed.

    The reader of the file adds the place: :meth:`at`.
    """

    def __init__(self, version: int, known: int, place: str = "") -> None:
        super().__init__(version, known, place)
        self.version = version
        self.known = known
        self.place = place

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return (
            f"{where}its version is {self.version}, and this release of rocketray reads versions "
            f"up to {self.known}; use the release that wrote it, or a newer one"
        )

    def at(self, place: object) -> UnknownVersionError:
        """Return the same error with its place."""
        return UnknownVersionError(self.version, self.known, str(place))


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form of one file, with its *name* in the table of the documentation."""

    name: str
    version: int = 1

    def of(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return *content* as it is written, with the version."""
        return {_KEY: self.version, **content}

    def content(self, value: dict[str, Any], place: object = "") -> dict[str, Any]:
        """Return *value*, which was read from *place*, if this release reads its version.

        Raises:
            UnknownVersionError: it does not.
            ValueError: *value* is no object, or its version is no number from 1 on.
        """
        version = value.get(_KEY, 1) if isinstance(value, dict) else None
        # Not isinstance: true is an int in Python.
        if type(version) is not int or version < 1:
            raise ValueError(f"{_KEY} is {version!r:.40}")
        if version > self.version:
            raise UnknownVersionError(version, self.version, str(place))
        return value
