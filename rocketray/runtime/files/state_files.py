"""Files of a node's state: JSON, replaced as a whole (whole_file.py).

A state file has a copy beside it, ``.bak``, with the same content. It is for repair after damage
and not for rollback: a change that was acknowledged, such as a deleted topic, a reset group or a
revoked queue, is in both. Earlier versions left the previous content there, and a process that died
between the two writes left the next one. So the owner of a file first makes the two the same.

The module also reads the disk use of a file system.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson

from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.base.whole_file import replace_file, sync_directory, write_beside
from rocketray.errors import StoreError, StreamError
from rocketray.runtime.processes import is_alive
from rocketray.store.retention import DiskUse

from .paths import broadcast_directory, config_directory

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
# Groups with 100,000 offsets have 4.2 MB (decisions.md), fifteen times less than this.
JSON_MAX_BYTES = 64 * 1024 * 1024
_DAMAGED = "*.json.damaged"
# As write_beside() names it: NAME.PID.tmp.
_HALF_WRITTEN = re.compile(r"(.+)\.(\d{1,19})\.tmp", re.ASCII)
# What a parser raises on JSON of another form, without a check of each value's type.
_DAMAGE = (StreamError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def disk_error(data: Path, error: OSError) -> StoreError:
    """Return the error for a node's directory whose file system accepts no more data."""
    return StoreError(f"{data}: {error.strerror}; see: df {data}")


def write_json(path: Path, value: object, *, backup: bool = True, is_indented: bool = True) -> None:
    """Replace *path* by *value* as JSON; after a crash it holds the old or the new, never half.

    A copy with the suffix ``.bak`` is written beside it, for :func:`read_state`. It is written
    first, so it is never older than an acknowledged change. Without *backup* there is no copy, and
    an old one is removed. A large file is written faster if it is not *is_indented* and sorted.

    Raises:
        StoreError: the content is larger than the limit for reading; the file is unchanged.
    """
    form = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS if is_indented else 0
    content = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | form)
    if len(content) > JSON_MAX_BYTES:
        raise StoreError(
            f"{path}: it would have {len(content)} bytes, more than the {JSON_MAX_BYTES} that can "
            "be read again, so it was not changed; remove topics, groups or named filters that are not needed"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    # The new content is on disk first, then in the copy, then in the file. A process that dies in
    # between leaves the temporary file, which tells read_state that a replacement was in progress.
    new = write_beside(path, content)
    if backup:
        is_first = not path.exists()  # until it exists, read_state needs a whole copy
        write_beside(_backup(path), content, sync=is_first).replace(_backup(path))
    else:
        _backup(path).unlink(missing_ok=True)
    new.replace(path)
    sync_directory(path.parent)


def read_json(path: Path, form: FileForm | None = None) -> dict[str, Any] | None:
    """Return the object in *path*, which is of a *form* of ours; None if there is no such file.

    Raises:
        StoreError: the file exists and is not a JSON object of at most 64 MiB.
        UnknownVersionError: it is of a later version.
    """
    try:
        with path.open("rb") as file:
            content = file.read(JSON_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > JSON_MAX_BYTES:
        raise StoreError(
            f"{path} is larger than {JSON_MAX_BYTES} bytes, so rocketray did not write it; restore "
            "it from a copy"
        )
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise StoreError(
            f"{path} is not valid JSON ({error}); restore it from a copy, "
            "or remove it to start without it"
        ) from None
    if not isinstance(value, dict):
        raise StoreError(f"{path} holds no JSON object; restore it from a copy")
    try:
        return value if form is None else form.content(value, path)
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}); restore it from a copy") from None


def read_state(
    path: Path, parse: Callable[[dict[str, Any]], _T], *, owns: bool = False
) -> _T | None:
    """Return *parse* of the object in *path*, or of that in its copy; None if there is none.

    The copy replaces a damaged file, and a missing one only if a replacement of it was in progress:
    otherwise it was removed on purpose. For the process that *owns* the file it is also repaired,
    and the damaged file is kept beside it with the suffix ``.damaged``. If the file is intact, its
    owner makes the copy the same, and the file durable: its predecessor may have been killed when
    it had replaced the file, and not yet synced its directory.

    Raises:
        StoreError: both are damaged, or there is no copy.
        UnknownVersionError: they are of a later version; nothing is changed.
        OSError: its owner cannot make it durable.
    """
    if owns:
        remove_half_written(path.parent)
    try:
        value = read_json(path)
        if value is not None:
            parsed = parse(value)
            if owns:
                _renew_copy(path)
                sync_directory(path.parent)
            return parsed
        if not (_backup(path).exists() and _replacements(path)):
            return None  # it was not being replaced
        reason = "missing, and was being replaced"
    except _DAMAGE as error:
        # A later version is no damage. If there is a copy that can be read, that is used, too.
        if isinstance(error, UnknownVersionError) and not _backup(path).exists():
            raise error.at(path) from None
        reason = f"damaged ({_in_short(path, error)})"
    parsed = _parse_copy(path, parse, reason)
    _LOG.warning("%s: %s; its copy %s is used", path, reason, _backup(path))
    if owns:
        _repair(path)
    return parsed


def remove_state(path: Path) -> None:
    """Remove a state file that is not used any more, and its copy."""
    _backup(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def repaired_files(data: Path) -> list[str]:
    """Return a line for each repaired file in *data* whose damaged version still exists."""
    found = list(data.glob(_DAMAGED))
    for directory in (config_directory(data), broadcast_directory(data)):
        found += directory.rglob(_DAMAGED)
    return [
        f"{damaged.with_suffix('')}: it was damaged, so it was replaced by its copy; the damaged "
        f"file is {damaged.name}: compare them, then remove that one"
        for damaged in sorted(found)
    ]


def remove_half_written(directory: Path) -> None:
    """Remove the temporary files in *directory* of processes that died while they replaced a file.

    A file that proves that a missing file was being replaced stays, for :func:`read_state`.
    """
    for path in directory.glob("*.tmp"):
        found = _HALF_WRITTEN.fullmatch(path.name)
        if found is not None and not is_alive(int(found[2])):
            target = path.with_name(found[1])
            if target.exists() or not _backup(target).exists():
                path.unlink(missing_ok=True)


def disk_use(directory: Path) -> DiskUse:
    """Return the used and free bytes of the file system of *directory*, as ``df`` counts them."""
    found = os.statvfs(directory)
    return DiskUse(
        used=(found.f_blocks - found.f_bfree) * found.f_frsize, free=found.f_bavail * found.f_frsize
    )


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _replacements(path: Path) -> list[Path]:
    """Return the temporary files that were to replace *path*."""
    found = [(each, _HALF_WRITTEN.fullmatch(each.name)) for each in path.parent.glob("*.tmp")]
    return [each for each, match in found if match is not None and match[1] == path.name]


def _parse_copy(path: Path, parse: Callable[[dict[str, Any]], _T], reason: str) -> _T:
    copy = _backup(path)
    try:
        value = read_json(copy)
        if value is not None:
            return parse(value)
        why = f"there is no {copy}"
    except UnknownVersionError as error:
        raise error.at(path) from None
    except _DAMAGE as error:
        why = f"so is {copy} ({_in_short(copy, error)})"
    raise StoreError(
        f"{path}: {reason}, and {why}; stop the node, restore the file from a backup, and start it "
        "again"
    )


def _renew_copy(path: Path) -> None:
    copy, content = _backup(path), path.read_bytes()
    if not copy.exists() or copy.read_bytes() != content:
        try:
            replace_file(copy, content, sync=False)
        except OSError as error:  # a full disk, for example, does not stop the node
            _LOG.warning("%s, the copy of %s, is not updated yet: %s", copy, path.name, error)


def _repair(path: Path) -> None:
    left = _replacements(path)
    new = write_beside(path, _backup(path).read_bytes())
    if path.exists():
        path.replace(path.with_name(path.name + ".damaged"))
    new.replace(path)
    sync_directory(path.parent)
    for each in left:  # else a process that removes the file later would get it back
        each.unlink(missing_ok=True)


def _in_short(path: Path, error: Exception) -> str:
    """Return what is wrong with *path*, without its name and without advice."""
    text = str(error) if isinstance(error, StreamError) else repr(error)
    return text.removeprefix(f"{path} ").partition("; ")[0]
