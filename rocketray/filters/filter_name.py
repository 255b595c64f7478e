"""Names of filters: ``large`` is a named filter of a topic, and ``large@2`` one version of it.

A name has 1 to 64 ASCII letters, digits, ``-`` and ``_``. Versions are numbered from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rocketray.errors import InvalidNameError

FILTER_NAME_MAX_CHARS = 64  # ours, as for a cluster's name
VERSION_MAX = 999_999_999  # nine digits: below 2**31
_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)  # up to VERSION_MAX


@dataclass(frozen=True, slots=True)
class FilterName:
    """A named filter of a topic, or one version of it; None leaves the version to the reader."""

    name: str
    version: int | None = None

    def __post_init__(self) -> None:
        check_filter_name(self.name)
        number = self.version
        if number is not None and (type(number) is not int or not 1 <= number <= VERSION_MAX):
            raise InvalidNameError(
                f"filter {self.name!r} has no version {number!r:.60}; they are numbered from 1"
            )

    @classmethod
    def parse(cls, text: str | FilterName) -> FilterName:
        """Return the name that *text* is, as ``large`` or ``large@2``; a name is itself.

        Raises:
            InvalidNameError: it is none.
        """
        if isinstance(text, FilterName):
            return text
        if not isinstance(text, str):
            raise InvalidNameError(
                f"{text!r:.60} is not the name of a filter; give a string, as 'large' or 'large@2'"
            )
        name, at, version = text.partition("@")
        if not at:
            return cls(name)
        if not _VERSION.fullmatch(version):
            raise InvalidNameError(
                f"{text[:80]!r}: {version[:20]!r} is not a version of filter {name[:64]!r}; give a "
                "number from 1, as large@2, or leave it out"
            )
        return cls(name, int(version))

    def is_of(self, named: str) -> bool:
        """Return whether *named*, the name of a version as ``large@2``, is of this filter."""
        return named.partition("@")[0] == self.name

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def check_filter_name(name: str) -> str:
    """Return *name*, that of a filter without a version, or raise :class:`InvalidNameError`."""
    if not isinstance(name, str) or not name:
        raise InvalidNameError(
            f"a filter's name is {name!r:.60}; give it 1 to {FILTER_NAME_MAX_CHARS} characters"
        )
    if not _NAME.fullmatch(name):
        if "@" in name:
            raise InvalidNameError(
                f"filter name {name[:80]!r} has a version in it, which is given apart, as in "
                "FilterName('large', 2); FilterName.parse reads the two together"
            )
        bad = sorted({char for char in name if not _NAME.fullmatch(char)})
        raise InvalidNameError(
            f"filter name {name[:80]!r} has characters that are not allowed: "
            f"{' '.join(map(repr, bad[:10]))}; use letters, digits, - and _"
        )
    if len(name) > FILTER_NAME_MAX_CHARS:
        raise InvalidNameError(
            f"filter name {name[:20]!r}… has {len(name)} characters; at most "
            f"{FILTER_NAME_MAX_CHARS} are allowed"
        )
    return name
