"""Damage to the files of a directory, decided by a random number generator alone."""

from __future__ import annotations

import random
from pathlib import Path

__all__ = ["damage"]

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
