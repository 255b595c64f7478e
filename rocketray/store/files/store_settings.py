"""``store.json``: the settings that a store directory was created with, used whenever it is opened.

    {"version": 2, "commit_log_segment_bytes": …, "store_host": ["127.0.0.1", 10911], …}
    32 blanks and tabs: the CRC-32 of the line or lines above, a tab for each bit that is 1

- The last line is blank for readers of JSON, so a release that does not know it reads the file. A
  file without that line was written by such a release, or edited: it has no checksum.
- Version 2 may use features that version 1 lacks: ext units, IPv6 store hosts, RocketMQ's CRC
  property.
- A newer version is refused. An older one can be read; it can be written only after an explicit
  upgrade, so that an older rocketray is not locked out silently.
- ``store.json.bak`` is a copy, for a file that is lost or damaged. It is written after the file and
  not synced: after a power failure the file is whole, and the next opening for writing renews the
  copy. That opening also writes the copy of a directory that has none, and repairs the file.
- A directory with a log and without both was written by RocketMQ. The caller gives its sizes, and
  it is opened read-only, or for recovery.
"""

from __future__ import annotations

import errno
import logging
import re
import shutil
import zlib
from dataclasses import asdict, fields, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import orjson

from rocketray.base.config import StoreConfig
from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.base.json_fields import read_value
from rocketray.base.whole_file import sync_directory
from rocketray.errors import ConfigError, StoreError, StoreVersionError

from .file_system import SYSTEM_FILES, FileSystem, replace_file
from .lock import StoreLock

_LOG = logging.getLogger(__name__)
_NAME = "store.json"
_COPY = f"{_NAME}.bak"
SETTINGS_FILES = (_NAME, _COPY)
_FORM = FileForm(_NAME, 2)
# Files of ours that RocketMQ does not have: beside them, the settings were lost.
_OURS = ("stopped.json", "recovered.json", "control")
_MAX_BYTES = 64 * 1024  # far above its few settings
_SUM_BITS = 32
_SUM_LINE = re.compile(rb"\n([ \t]{%d})\n\Z" % _SUM_BITS)
_BITS_AS_BLANKS = bytes.maketrans(b"01", b" \t")
_DEFAULTS = orjson.loads(orjson.dumps(asdict(StoreConfig())))  # as JSON has them
_NOT_OF_THE_DIRECTORY = {"flush_interval_ms", "append_properties_crc"}  # those of an opening


class _Kept(NamedTuple):
    """The settings of a directory, and the file that they were read from."""

    name: str
    version: int
    config: StoreConfig
    raw: bytes


class Salvage(Enum):
    """The parts of a damaged store that an opening makes agree with the whole of its log."""

    NOTHING = "none; what the checkpoint covers is trusted"
    ALL = "queues and index"
    ALL_BUT_INDEX = "queues; the index stays as it is, since the number of its slots is unknown"


def settle_config(
    directory: Path,
    given: StoreConfig | None,
    *,
    read_only: bool,
    salvage: Salvage = Salvage.NOTHING,
    file_system: FileSystem = SYSTEM_FILES,
) -> StoreConfig:
    """Return the settings for opening *directory*; a new directory gets *given* or the defaults.

    A directory that RocketMQ wrote is opened read-only, or to *salvage* it, with *given*. Unless
    *read_only*, the caller has the lock, and a damaged file is repaired from its copy.

    Raises:
        ConfigError: *given* and the directory disagree, or neither has the sizes.
        StoreError: the settings and their copy are damaged.
        StoreVersionError: a newer rocketray created the directory, or an older one and it is to be
            written.
    """
    kept = _read(file_system, directory)
    if kept is not None:
        if kept.version < _FORM.version and not read_only:
            raise StoreVersionError(
                f"{directory / _NAME}: its version is {kept.version}, and this release of rocketray "
                f"writes version {_FORM.version}; upgrade it with: rocketray store upgrade "
                f"{directory}"
            )
        config = _agreed(directory, kept.config, given)
        if not read_only:
            _mend(file_system, directory, kept)
        return config
    is_ours = any(file_system.exists(directory / name) for name in _OURS)
    if read_only or (salvage is not Salvage.NOTHING and given is not None and not is_ours):
        return _of_foreign(file_system, directory, given, is_ours=is_ours)
    # New settings beside an old log would read it with wrong sizes.
    if file_system.names(directory / "commitlog") or (is_ours and salvage is not Salvage.NOTHING):
        written = "" if is_ours else "RocketMQ wrote it, or "
        raise ConfigError(
            f"{directory} has files of a store and no {_NAME}: {written}the file and its copy "
            f"{_COPY} were lost; {without_settings(directory)}"
        )
    config = given or StoreConfig()
    _write(file_system, directory, config)
    return config


def read_settings(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> StoreConfig | None:
    """Return the settings that *directory* was created with; None without settings or directory.

    Raises:
        StoreError: the file and its copy are damaged.
        StoreVersionError: a newer rocketray wrote it.
    """
    kept = _read(file_system, directory)
    return None if kept is None else kept.config


def without_settings(directory: Path) -> str:
    """Return what to do about a store of ours whose settings were lost, for an error."""
    return (
        f"copy {_NAME} there from a backup of the node (Lost settings in docs/reference/store.md has "
        "what to look at); without one, copy the messages to a node without their topic: rocketray "
        f"store import {directory} --all --data DATA"
    )


def damaged_settings(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> Path | None:
    """Return ``store.json`` if its copy is used, because it is lost or damaged; None if not."""
    kept = _read(file_system, directory)
    return directory / _NAME if kept is not None and kept.name != _NAME else None


def is_store(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> bool:
    """Return whether *directory* looks like a store, of ours or of RocketMQ's."""
    return not is_foreign(directory, file_system) or file_system.is_directory(
        directory / "commitlog"
    )


def remove_store(directory: Path) -> None:
    """Remove a store with its directory; a repetition continues a removal that was cut short.

    The settings go last, the copy before the file: until then they tell whose the rest is. A copy
    without its file could be empty after a power failure, since it is not synced.

    Raises:
        OSError: something cannot be removed, or is there again.
    """
    for path in directory.iterdir():
        if path.name in SETTINGS_FILES:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    sync_directory(directory)
    (directory / _COPY).unlink(missing_ok=True)
    sync_directory(directory)
    shutil.rmtree(directory)


def upgrade_store(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> int:
    """Upgrade *directory*, which must not be open; return the version that it had.

    Its files stay unchanged, because every version since the first is a part of the next; but older
    versions cannot open it for writing any more. Repeating it has no effect.

    Raises:
        StoreLockedError: the directory is open.
        ConfigError: RocketMQ wrote it.
        StoreVersionError: a newer rocketray did.
    """
    lock = StoreLock(directory, file_system)
    try:
        kept = _read(file_system, directory)
        if kept is None:
            raise ConfigError(f"{directory} has no {_NAME}: it is not a store of rocketray")
        if kept.version < _FORM.version:
            _write(file_system, directory, kept.config)
        return kept.version
    finally:
        lock.release(clean=False)


def allow_units(directory: Path, config: StoreConfig, file_system: FileSystem) -> StoreConfig:
    """Let queue entries of *directory*, which the caller writes, have ConsumeQueueExt units."""
    config = replace(config, consume_queue_ext=True)
    _write(file_system, directory, config)
    return config


def is_foreign(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> bool:
    """Return whether *directory* has no settings of ours: then a RocketMQ broker wrote it."""
    return not any(file_system.exists(directory / name) for name in SETTINGS_FILES)


def _of_foreign(
    file_system: FileSystem, directory: Path, given: StoreConfig | None, *, is_ours: bool
) -> StoreConfig:
    if not file_system.is_directory(directory):
        raise ConfigError(f"{directory} does not exist; there is nothing to read")
    if given is None and is_ours:
        raise ConfigError(
            f"{directory} has no {_NAME}: the file and its copy {_COPY} were lost; "
            f"{without_settings(directory)}"
        )
    if given is None:
        raise ConfigError(
            f"{directory} has no {_NAME}, so its file sizes are unknown; give a StoreConfig with "
            "the settings of its RocketMQ broker"
        )
    return given


def _agreed(directory: Path, kept: StoreConfig, given: StoreConfig | None) -> StoreConfig:
    if given is None:
        return kept
    for name in (field.name for field in fields(StoreConfig)):
        ours, theirs = getattr(kept, name), getattr(given, name)
        if ours != theirs and name not in _NOT_OF_THE_DIRECTORY:
            raise ConfigError(
                f"{directory} was created with {name}={ours!r} and is opened with {theirs!r}; open "
                "it without a config, or with the one it was created with"
            )
    return given


def _read(file_system: FileSystem, directory: Path) -> _Kept | None:
    """Return the settings, from the copy if the file is lost or damaged; None without both."""
    reasons = {}
    for name in SETTINGS_FILES:
        try:
            kept = _parsed(name, file_system.read(directory / name, _MAX_BYTES))
        except FileNotFoundError:
            reasons[name] = "missing"
        except UnknownVersionError as error:
            raise error.at(directory / name) from None
        except OSError as error:
            if error.errno != errno.EIO:  # others pass, such as too many open files
                raise
            reasons[name] = f"damaged ({error.strerror})"
        except ValueError as error:
            reasons[name] = f"damaged ({error})"
        else:
            for lost, reason in reasons.items():
                _LOG.warning("%s: %s; its copy %s is used", directory / lost, reason, name)
            return kept
    if {*reasons.values()} == {"missing"}:
        return None
    raise StoreError(
        f"{directory / _NAME} has no valid store settings: it is {reasons[_NAME]}, and its copy "
        f"{_COPY} is {reasons[_COPY]}; move both away, then {without_settings(directory)}"
    )


def _with_sum(text: bytes) -> bytes:
    """Return the content of a file that has *text*."""
    bits = f"{zlib.crc32(text):0{_SUM_BITS}b}".encode()
    return b"%s\n%s\n" % (text, bits.translate(_BITS_AS_BLANKS))


def _check_sum(raw: bytes) -> None:
    """Raise ValueError unless the content of a file has its checksum, or none."""
    found = _SUM_LINE.search(raw)
    if found is not None and raw != _with_sum(raw[: found.start()]):
        raise ValueError("it has another checksum; after an edit by hand, remove its last line")


def _parsed(name: str, raw: bytes) -> _Kept:
    _check_sum(raw)
    value = _FORM.content(orjson.loads(raw))
    names = {field.name for field in fields(StoreConfig)}
    if unknown := value.keys() - names - {"version"}:
        raise ValueError(f"it has the unknown setting {min(unknown)!r:.60}")
    if "store_host" not in value:  # without one, others count as the defaults of that version
        raise ValueError("it has no 'store_host'")
    config = read_value(StoreConfig, _DEFAULTS | value, str)
    return _Kept(name, read_value(int, value.get("version", 1)), config, raw)


def _write(file_system: FileSystem, directory: Path, config: StoreConfig) -> None:
    raw = _with_sum(orjson.dumps(_FORM.of(asdict(config)), option=orjson.OPT_INDENT_2))
    replace_file(file_system, directory / _NAME, raw)
    _renew_copy(file_system, directory, raw)


def _mend(file_system: FileSystem, directory: Path, kept: _Kept) -> None:
    """Repair the file from its copy, or make the copy the same as the file."""
    if kept.name == _NAME:
        _renew_copy(file_system, directory, kept.raw)
        return
    path = directory / _NAME
    if file_system.exists(path):
        file_system.rename(path, path.with_name(f"{_NAME}.damaged"))
    replace_file(file_system, path, kept.raw)


def _renew_copy(file_system: FileSystem, directory: Path, raw: bytes) -> None:
    path = directory / _COPY
    try:
        if not file_system.exists(path) or file_system.read(path, _MAX_BYTES) != raw:
            replace_file(file_system, path, raw, is_durable=False)
    # A full disk, for example: the copy alone keeps no store closed.
    except (OSError, StoreError) as error:
        _LOG.warning("%s is not updated yet: %s", path, error)
