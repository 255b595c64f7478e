"""Files of a node's state: JSON, replaced whole (whole_file.py).

A file of the state has a copy beside it, ``.bak``, with the same content. It is there for damage,
and not for going back: what was said to be done, a topic deleted, a group reset or a queue given up,
is done in both. Versions before left the previous content there, and a process that died between the
two writes the next one; so the first that a file's owner does is to make them the same.

And what goes with a topic, and what a file system says of itself.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson

from rocketray.actors.runtime.processes import is_alive
from rocketray.errors import StoreError, StreamError
from rocketray.store.retention import DiskUse
from rocketray.whole_file import replace_file, sync_directory, write_beside

from .paths import broadcast_directory, config_directory, producer_rings_directory, shard_directory

__all__ = [
    "JSON_MAX_BYTES",
    "disk_error",
    "disk_use",
    "mended_files",
    "read_json",
    "read_state",
    "remove_half_written",
    "remove_topic",
    "write_json",
]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
JSON_MAX_BYTES = 64 * 1024 * 1024
_DAMAGED = "*.json.damaged"
_HALF_WRITTEN = re.compile(r"(.+)\.(\d{1,19})\.tmp", re.ASCII)
_DAMAGE = (StreamError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_REMOVALS = 20
_REMOVAL_INTERVAL_S = 0.1


def disk_error(data: Path, error: OSError) -> StoreError:
    """What to say where the file system of a node's directory takes nothing more."""
    return StoreError(f"{data}: {error.strerror}; see: df {data}")


def write_json(path: Path, value: object, *, backup: bool = True) -> None:
    """Replace *path* by *value* as JSON; after a crash it holds the old or the new, never half.

    A copy lies beside it then, with the suffix ``.bak``, for :func:`read_state`. It is written
    before, so it is never older than what the caller was told is done. Without *backup* there is
    none, not even an old one.

    Raises:
        StoreError: that is more than would be read again; the file is as it was.
    """
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
    content = orjson.dumps(value, option=options)
    if len(content) > JSON_MAX_BYTES:
        raise StoreError(
            f"{path}: it would have {len(content)} bytes, more than the {JSON_MAX_BYTES} that can be "
            "read again, so it is as it was; remove topics or groups that are not needed"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    new = write_beside(path, content)
    if backup:
        write_beside(_backup(path), content, sync=False).replace(_backup(path))
    else:
        _backup(path).unlink(missing_ok=True)
    new.replace(path)
    sync_directory(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in *path*; None when there is no such file.

    Raises:
        StoreError: the file is there and is not a JSON object of at most 64 MiB.
    """
    try:
        with path.open("rb") as file:
            content = file.read(JSON_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > JSON_MAX_BYTES:
        raise StoreError(f"{path} is larger than {JSON_MAX_BYTES} bytes; it is not ours")
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise StoreError(
            f"{path} is not valid JSON ({error}); restore it from a copy, "
            "or remove it to start without it"
        ) from None
    if not isinstance(value, dict):
        raise StoreError(f"{path} holds no JSON object; restore it from a copy")
    return value


def read_state(
    path: Path, parse: Callable[[dict[str, Any]], _T], *, owns: bool = False
) -> _T | None:
    """What *parse* makes of the object in *path*, or of that in its copy; None when there is none.

    The copy stands in for a file that is damaged, and for a missing one only if a replacement of
    it was under way: else somebody removed it, and means it. For the process that *owns* the file
    it is mended, too: what was damaged is kept beside it with the suffix ``.damaged``. Where the
    file is whole, its owner sees that the copy is the same.

    Raises:
        StoreError: both are damaged, or there is no copy.
    """
    if owns:
        remove_half_written(path.parent)
    try:
        value = read_json(path)
        if value is not None:
            parsed = parse(value)
            if owns:
                _renew_copy(path)
            return parsed
        if not _was_being_replaced(path):
            return None
        reason = "missing, and was being replaced"
    except _DAMAGE as error:
        reason = f"damaged ({_in_short(path, error)})"
    parsed = _parse_copy(path, parse, reason)
    _LOG.warning("%s: %s; its copy %s is used", path, reason, _backup(path))
    if owns:
        _mend(path)
    return parsed


def mended_files(data: Path) -> list[str]:
    """A line for each file of a data directory that was mended, until what was damaged is removed."""
    found = list(data.glob(_DAMAGED))
    for directory in (config_directory(data), broadcast_directory(data)):
        found += directory.rglob(_DAMAGED)
    return [
        f"{damaged.with_suffix('')}: it was damaged, so its copy took its place; what was damaged "
        f"is in {damaged.name}: compare them, then remove that one"
        for damaged in sorted(found)
    ]


def remove_half_written(directory: Path) -> None:
    """Remove what processes left in *directory* that died while they replaced a file.

    What tells that a missing file was being replaced stays, for :func:`read_state`.
    """
    for path in directory.glob("*.tmp"):
        found = _HALF_WRITTEN.fullmatch(path.name)
        if found is not None and not is_alive(int(found[2])):
            target = path.with_name(found[1])
            if target.exists() or not _backup(target).exists():
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


def disk_use(directory: Path) -> DiskUse:
    """How full the file system of *directory* is, as ``df`` counts it."""
    found = os.statvfs(directory)
    return DiskUse(
        used=(found.f_blocks - found.f_bfree) * found.f_frsize, free=found.f_bavail * found.f_frsize
    )


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _damaged(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _replacements(path: Path) -> list[Path]:
    """What processes wrote that was to take the name *path*."""
    found = [(each, _HALF_WRITTEN.fullmatch(each.name)) for each in path.parent.glob("*.tmp")]
    return [each for each, match in found if match is not None and match[1] == path.name]


def _was_being_replaced(path: Path) -> bool:
    return _backup(path).exists() and bool(_replacements(path))


def _parse_copy(path: Path, parse: Callable[[dict[str, Any]], _T], reason: str) -> _T:
    copy = _backup(path)
    try:
        value = read_json(copy)
        if value is not None:
            return parse(value)
        why = f"there is no {copy}"
    except _DAMAGE as error:
        why = f"so is {copy} ({_in_short(copy, error)})"
    raise StoreError(
        f"{path}: {reason}, and {why}; stop the node, restore the file from a copy of your own, and "
        "start it again"
    )


def _renew_copy(path: Path) -> None:
    copy, content = _backup(path), path.read_bytes()
    if not copy.exists() or copy.read_bytes() != content:
        try:
            replace_file(copy, content, sync=False)
        except OSError as error:  # a full disk, say, stops no node
            _LOG.warning("%s is not the copy of %s yet: %s", copy, path.name, error)


def _mend(path: Path) -> None:
    """Let *path* hold what its copy holds."""
    left = _replacements(path)
    new = write_beside(path, _backup(path).read_bytes())
    if path.exists():
        path.replace(_damaged(path))
    new.replace(path)
    sync_directory(path.parent)
    for each in left:  # else who removes the file later would get it back
        each.unlink(missing_ok=True)


def _in_short(path: Path, error: Exception) -> str:
    """What is wrong with *path*, without its name and without advice."""
    text = str(error) if isinstance(error, StreamError) else repr(error)
    return text.removeprefix(f"{path} ").partition("; ")[0]
