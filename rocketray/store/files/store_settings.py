"""``store.json``: the settings that a store directory was created with, used whenever it is opened.

    {"version": 2, "commit_log_segment_bytes": …, "store_host": ["127.0.0.1", 10911], …}

- Version 2 may use features that version 1 lacks: ext units, IPv6 store hosts, RocketMQ's CRC
  property.
- A newer version is refused. An older one can be read; it can be written only after an explicit
  upgrade, so that an older rocketray is not locked out silently.
- A directory with a log and without this file was written by RocketMQ. The caller gives its sizes,
  and it is opened read-only, or for recovery.
- A file that was lost or damaged can be written again (recovery/lost_settings.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

from rocketray.base.config import StoreConfig
from rocketray.base.file_form import FileForm
from rocketray.errors import ConfigError, StoreError, StoreVersionError

from .file_system import SYSTEM_FILES, FileSystem, replace_file
from .lock import StoreLock

_NAME = "store.json"
_FORM = FileForm(_NAME, 2)
_MAX_BYTES = 64 * 1024  # far above its few settings
_NOT_OF_THE_DIRECTORY = {"flush_interval_ms", "append_properties_crc"}  # those of an opening


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

    A directory that RocketMQ wrote is opened read-only, or to *salvage* it, with *given*.

    Raises:
        ConfigError: *given* and the directory disagree, or neither has the sizes.
        StoreVersionError: a newer rocketray created the directory, or an older one and it is to be
            written.
    """
    settings = _read(file_system, directory / _NAME)
    if settings is not None:
        version, kept = settings
        if version < _FORM.version and not read_only:
            raise StoreVersionError(
                f"{directory / _NAME}: its version is {version}, and this release of rocketray "
                f"writes version {_FORM.version}; upgrade it with: rocketray store upgrade "
                f"{directory}"
            )
        return _agreed(directory, kept, given)
    if read_only or (salvage is not Salvage.NOTHING and given is not None):
        return _of_foreign(file_system, directory, given)
    # New settings beside an old log would read it with wrong sizes.
    if file_system.names(directory / "commitlog"):
        raise ConfigError(
            f"{directory} has a commit log and no {_NAME}: RocketMQ wrote it, or the file was "
            "lost; open it read-only with its file sizes, or restore the file: rocketray store "
            f"recover {directory}"
        )
    config = given or StoreConfig()
    _write(file_system, directory, config)
    return config


def read_settings(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> StoreConfig | None:
    """Return the settings that *directory* was created with; None without settings or directory.

    Raises:
        ConfigError: the file is damaged.
        StoreVersionError: a newer rocketray wrote it.
    """
    found = _read(file_system, directory / _NAME)
    return None if found is None else found[1]


def is_store(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> bool:
    """Return whether *directory* looks like a store, of ours or of RocketMQ's."""
    return not is_foreign(directory, file_system) or file_system.is_directory(
        directory / "commitlog"
    )


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
        settings = _read(file_system, directory / _NAME)
        if settings is None:
            raise ConfigError(f"{directory} has no {_NAME}: it is not a store of rocketray")
        version, config = settings
        if version < _FORM.version:
            _write(file_system, directory, config)
        return version
    finally:
        lock.release(clean=False)


def restore_settings(
    directory: Path, config: StoreConfig, file_system: FileSystem = SYSTEM_FILES
) -> None:
    """Write the lost or damaged settings of *directory*, which must not be open.

    A damaged file is kept beside it, with the suffix ``.damaged``.

    Raises:
        StoreLockedError: the directory is open.
    """
    lock = StoreLock(directory, file_system)
    try:
        path = directory / _NAME
        if file_system.exists(path):
            file_system.rename(path, path.with_name(f"{_NAME}.damaged"))
        _write(file_system, directory, config)
    finally:
        lock.release(clean=False)


def usual_size(paths: Iterable[Path]) -> int:
    """Return the size of most of the files *paths*, the largest on a tie; 0 without files.

    The others were cut short, or a crash came before their size was durable.
    """
    sizes = Counter(
        path.stat().st_size for path in paths if path.name.isdecimal() and path.is_file()
    )
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def allow_units(directory: Path, config: StoreConfig, file_system: FileSystem) -> StoreConfig:
    """Let queue entries of *directory*, which the caller writes, have ConsumeQueueExt units."""
    config = replace(config, consume_queue_ext=True)
    _write(file_system, directory, config)
    return config


def is_foreign(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> bool:
    """Return whether *directory* has no settings of ours: then a RocketMQ broker wrote it."""
    return not file_system.exists(directory / _NAME)


def _of_foreign(file_system: FileSystem, directory: Path, given: StoreConfig | None) -> StoreConfig:
    if not file_system.is_directory(directory):
        raise ConfigError(f"{directory} does not exist; there is nothing to read")
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


def _read(file_system: FileSystem, path: Path) -> tuple[int, StoreConfig] | None:
    """Return the version and the settings; None without a file."""
    try:
        raw = file_system.read(path, _MAX_BYTES)
    except FileNotFoundError:
        return None
    try:
        value: Any = orjson.loads(raw)
        version = _FORM.content(value, path).pop("version")
        value["store_host"] = (str(value["store_host"][0]), int(value["store_host"][1]))
        return int(version), StoreConfig(**value)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise StoreError(
            f"{path} has no valid store settings ({error}); restore it from a copy, or from the "
            f"catalog of its node: rocketray store recover {path.parent}"
        ) from None


def _write(file_system: FileSystem, directory: Path, config: StoreConfig) -> None:
    raw = orjson.dumps(_FORM.of(asdict(config)), option=orjson.OPT_INDENT_2)
    replace_file(file_system, directory / _NAME, raw)
