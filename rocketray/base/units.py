"""Times and sizes in users' notation: ``90s``, ``36h``, ``7d``, ``500MB``, ``10GiB``.

A number and a unit, without a blank, at which a shell would split them. ``none`` means no limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocketray.errors import ConfigError

# 18 digits are more than any time or size has; ``int`` of millions of digits would take long.
_NUMBER_AND_UNIT = re.compile(r"(\d{1,18}) ?([A-Za-z]+)", re.ASCII)
_NO_LIMIT = "none"
_TIME = "a time like 90s, 30m, 72h or 7d"
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_BINARY = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_BYTES = _BINARY | {"kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}


def parse_duration(text: str) -> int | None:
    """Return milliseconds, or None for ``none``; raises ConfigError."""
    return _parse(text, _MILLISECONDS, f"{_TIME}, nor {_NO_LIMIT}")


def parse_delay(text: str) -> int:
    """Return milliseconds to wait; raises ConfigError."""
    found = None if text == _NO_LIMIT else _parse(text, _MILLISECONDS, _TIME)
    if found is None:
        raise ConfigError(f"give {_TIME}")
    return found


def parse_bytes(text: str) -> int | None:
    """Return bytes, or None for ``none``; raises ConfigError."""
    return _parse(text, _BYTES, f"a size like 500MB or 10GiB, nor {_NO_LIMIT}")


def format_duration(milliseconds: int) -> str:
    """Return a time in the largest unit that it is a whole number of."""
    return _format(milliseconds, _MILLISECONDS)


def format_bytes(size: int) -> str:
    """Return a size in the largest binary unit that it is a whole number of."""
    return _format(size, _BINARY)


def format_size(size: int) -> str:
    """Return a measured size, with one digit behind the point, in a unit of which it has some."""
    for name, unit in _BINARY.items():
        if size >= unit > 1:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _parse(text: str, units: Mapping[str, int], wanted: str) -> int | None:
    if text == _NO_LIMIT:
        return None
    found = _NUMBER_AND_UNIT.fullmatch(text)
    if found is None or found[2] not in units or int(found[1]) == 0:
        raise ConfigError(f"{text!r} is not {wanted}")
    return int(found[1]) * units[found[2]]


def _format(value: int, units: Mapping[str, int]) -> str:
    unit = next(unit for unit, size in units.items() if value % size == 0)
    return f"{value // units[unit]}{unit}"
