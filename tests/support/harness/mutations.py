"""Damage to the files of a directory, or to one of JSON, decided by a random generator alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

_NUMBERS = (0, 1, -1, 2**15, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), -(2**31) - 1)
_STRAY_NAMES = ("x", "00000000000000000001", "9" * 20, "9" * 30, "-0000000000000000001", "é.tmp")


def damage(directory: Path, rng: random.Random) -> list[str]:
    """Change some files of *directory*; returns what was done, for a failure's message."""
    return [_damage_one(directory, rng) for _ in range(rng.choice((1, 1, 1, 2, 4)))]


def _damage_one(directory: Path, rng: random.Random) -> str:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    kinds = sorted({path.relative_to(directory).parts[0] for path in files})
    kind = rng.choice(kinds)  # as often in the one small checkpoint as in the log's many files
    path = rng.choice([one for one in files if one.relative_to(directory).parts[0] == kind])
    how = rng.choice(_WAYS)
    if how in _WAYS_OF_NAMES:
        _move(path, rng.choice(files), how, rng)
    else:
        content = bytearray(path.read_bytes())
        path.write_bytes(_change(content, how, rng))
    return f"{how} {path.relative_to(directory)}"


_WAYS_OF_NAMES = ("remove", "swap", "rename", "make a directory of", "copy as a stray")
_WAYS = (
    *("flip", "flip", "flip", "overwrite", "overwrite", "put a number into", "move a part within"),
    *("cut", "extend", "empty", "fill with noise", "fill with zeros"),
    *_WAYS_OF_NAMES,
)


def _change(content: bytearray, how: str, rng: random.Random) -> bytes:
    size = len(content)
    # Most of a file is zeros behind its end: look for something that is there.
    used = len(bytes(content).rstrip(b"\0")) + 16
    at = rng.randrange(max(1, min(used, size)))
    if how == "flip" and size:
        content[at] ^= 1 << rng.randrange(8)
    elif how == "overwrite":
        noise = rng.randbytes(rng.choice((1, 4, 8, 20, 100)))
        content[at : at + len(noise)] = noise
        del content[size:]
    elif how == "put a number into":
        width = rng.choice((2, 4, 8))
        number = rng.choice(_NUMBERS) % (1 << 8 * width)
        content[at : at + width] = number.to_bytes(width, "big")
        del content[size:]
    elif how == "move a part within":
        length = rng.choice((4, 20, 120, 300))
        to = rng.randrange(max(1, min(used, size)))
        content[to : to + length] = content[at : at + length]
        del content[size:]
    elif how == "cut":
        del content[at:]
    elif how == "extend":
        content += rng.randbytes(rng.choice((1, 20, 4096)))
    elif how == "empty":
        content.clear()
    elif how == "fill with noise":
        content[:] = rng.randbytes(size)
    elif how == "fill with zeros":
        content[at:] = bytes(size - at)
    return bytes(content)


def _move(path: Path, other: Path, how: str, rng: random.Random) -> None:
    content = path.read_bytes()
    if how == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif how == "copy as a stray":
        stray = path.with_name(rng.choice(_STRAY_NAMES))
        if not stray.exists():
            stray.write_bytes(content)
    elif how == "rename":
        to = path.with_name(rng.choice(_STRAY_NAMES))
        if not to.exists():
            path.rename(to)
    else:
        path.unlink()
        if how == "make a directory of":
            path.mkdir()


_VALUES = (
    *("null", "true", '""', '"x"', '"7"', '"a@b"', "-1", "0", str(2**31), str(2**63 - 1)),
    *(str(2**70), "1.5", "1e300", "[]", "[1]", '["x"]', "[[]]"),
    *("{}", '{"x": 1}', '{"7": {}}', '{"a@b": []}'),
)


def damaged_json(content: bytes, rng: random.Random) -> bytes:
    """An object of JSON with some of its values or names changed, or its bytes."""
    if rng.random() < 0.2:
        return _change(bytearray(content), rng.choice(_WAYS[: -len(_WAYS_OF_NAMES)]), rng)
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _changed(value, rng)
    return json.dumps(value).encode()


def _changed(value: Any, rng: random.Random) -> Any:
    """*value* with one place in it changed, or all of it."""
    names: list[Any] = []
    if isinstance(value, dict | list):
        names = list(value) if isinstance(value, dict) else [*range(len(value))]
    if not names or rng.random() < 0.15:
        return json.loads(rng.choice(_VALUES))
    name = rng.choice(names)
    if isinstance(value, dict) and rng.random() < 0.2:
        taken = value.pop(name)
        if rng.random() < 0.7:
            value[rng.choice(("", "x", "é@@", "-1", "9" * 20))] = taken
    else:
        value[name] = _changed(value[name], rng)
    return value
