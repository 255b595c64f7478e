"""Small files written whole: the new one is on disk before it takes the old one's name.

And what a file system says of itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from rocketray.errors import ConfigError, StoreError, StreamError
from rocketray.store.retention import DiskUse

__all__ = ["JSON_MAX_BYTES", "as_written", "disk_use", "read_json", "write_json"]

JSON_MAX_BYTES = 64 * 1024 * 1024


def write_json(path: Path, value: object) -> None:
    """Replace *path* by *value* as JSON; after a crash it holds the old or the new, never half.

    The previous version stays beside it with the suffix ``.bak``, as RocketMQ keeps it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
    with temporary.open("wb") as file:
        file.write(orjson.dumps(value, option=options))
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(path.with_name(path.name + ".bak"))
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in *path*, else in its ``.bak``; None when there is neither.

    Raises:
        StoreError: the file is there and is not a JSON object of at most 64 MiB.
    """
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            with candidate.open("rb") as file:
                content = file.read(JSON_MAX_BYTES + 1)
        except FileNotFoundError:
            continue
        if len(content) > JSON_MAX_BYTES:
            raise StoreError(f"{candidate} is larger than {JSON_MAX_BYTES} bytes; it is not ours")
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise StoreError(
                f"{candidate} is not valid JSON ({error}); restore it from a copy, "
                "or remove it to start without it"
            ) from None
        if not isinstance(value, dict):
            raise StoreError(f"{candidate} holds no JSON object; restore it from a copy")
        return value
    return None


@contextmanager
def as_written(directory: Path, *names: str) -> Iterator[None]:
    """Raise :class:`ConfigError` where what was read from files is not what we write to them."""
    try:
        yield
    except StreamError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{directory}: {' or '.join(names)} is not as it was written ({error!r}); "
            "restore it from a copy"
        ) from None


def disk_use(directory: Path) -> DiskUse:
    """How full the file system of *directory* is, as ``df`` counts it."""
    found = os.statvfs(directory)
    return DiskUse(
        used=(found.f_blocks - found.f_bfree) * found.f_frsize, free=found.f_bavail * found.f_frsize
    )
