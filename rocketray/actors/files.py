"""Small files written whole: the new one is on disk before it takes the old one's name.

And what goes with a topic, and what a file system says of itself.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from rocketray.errors import ConfigError, StoreError, StreamError
from rocketray.store.retention import DiskUse

from .layout import producer_rings_directory, shard_directory
from .processes import is_alive

__all__ = [
    "JSON_MAX_BYTES",
    "as_written",
    "disk_use",
    "read_json",
    "remove_half_written",
    "remove_topic",
    "write_json",
]

JSON_MAX_BYTES = 64 * 1024 * 1024
_HALF_WRITTEN = re.compile(r".+\.(\d{1,19})\.tmp", re.ASCII)
_REMOVALS = 20
_REMOVAL_INTERVAL_S = 0.1


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


def remove_half_written(directory: Path) -> None:
    """Remove what processes left in *directory* that died in :func:`write_json`."""
    for path in directory.glob("*.tmp"):
        found = _HALF_WRITTEN.fullmatch(path.name)
        if found is not None and not is_alive(int(found[1])):
            path.unlink(missing_ok=True)


def remove_topic(data: Path, topic: str) -> None:
    """Remove the shards of a topic that is gone, and the rings that lead to them.

    A shard that was killed may be writing for a moment still.

    Raises:
        OSError: some of it cannot be removed.
    """
    rings, shards = producer_rings_directory(data, topic, 0), shard_directory(data, topic, 0)
    shutil.rmtree(rings.parent, ignore_errors=True)
    for _ in range(_REMOVALS):
        shutil.rmtree(shards.parent, ignore_errors=True)
        if not shards.parent.exists():
            return
        time.sleep(_REMOVAL_INTERVAL_S)
    shutil.rmtree(shards.parent)


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
