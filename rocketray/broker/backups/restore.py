"""The restoration of a backup as a new data directory, with a UUID of its own.

A disk of a cluster that has several is restored under another name of that cluster (renaming.py).

All is made in DATA/restoring: the files are copied and compared with the manifest, then each queue
is opened, which reads its log and makes its index. At the end the UUID is written there, and the
parts are moved to their places, the UUID last.

Invariant: a directory with a UUID is restored as a whole. One without it is used by no node while
DATA/restoring is there (home.py), and the next restoration removes what this one has left.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketray.base.cluster import check_cluster
from rocketray.base.whole_file import sync_directory
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.files.home import settle_identity
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import (
    control_path,
    identity_file,
    restoration_directory,
    shard_directory,
)
from rocketray.runtime.files.private_files import is_own_directory
from rocketray.runtime.files.restorations import Restoration, note_restoration
from rocketray.runtime.files.state_files import disk_use
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore

from .backup import OnProgress
from .file_copy import FileSum, copy_file
from .manifest import PARTS, Manifest, content_directory, read_manifest
from .renaming import is_of_several, rename_cluster, renamed_disk

# What an empty directory may have: ext4 has lost+found in the root of each file system.
_IN_ANY = {"node.lock", "lost+found", "restoring"}


def restore(
    backup: Path,
    data: Path,
    *,
    clock_ms: Callable[[], int],
    cluster: str | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> tuple[str, Manifest]:
    """Make *data*, a new or empty directory, from a backup; return its UUID, and the manifest.

    *cluster* is the new name of a cluster that has several disks, the same for all of them.

    Raises:
        ConfigError: *data* is not empty; or *cluster* is missing, given for a backup of a cluster
            with one disk, or no name.
        StoreError: the backup is incomplete or damaged, or there is no room.
    """
    data, backup = data.resolve(), backup.resolve()
    manifest = read_manifest(backup)
    _check_name(backup, manifest, cluster)
    _check_target(data, backup)
    lock = lock_node(data)
    try:
        _check_target(data, backup)
        with _begun(data) as staging:
            free = disk_use(data).free
            if manifest.used_bytes > free:
                raise StoreError(
                    f"{data}: the backup has {manifest.used_bytes} bytes, and there is room for "
                    f"{free} on its file system; free space there, or name another directory with "
                    "--data"
                )
            _copy(content_directory(backup), staging, manifest, on_progress)
            its_id = uuid.uuid4().hex
            for name, end in manifest.queues.items():
                on_progress(f"index of {name}", manifest.used_bytes, manifest.used_bytes)
                _open_queue(staging, name, Restoration(its_id, end), clock_ms)
            new = None
            if cluster is not None:
                rename_cluster(staging, cluster)
                new = renamed_disk(cluster, manifest.disk)
            disk = settle_identity(staging, new)
            _move(staging, data)
    finally:
        os.close(lock)
    return disk, manifest


@contextmanager
def _begun(data: Path) -> Iterator[Path]:
    """Yield the directory in which all is made; an error removes what was made."""
    _discard(data)
    staging = restoration_directory(data)
    if staging.exists():
        raise StoreError(
            f"{data}: what an interrupted restoration left cannot be removed; remove the directory, "
            "or name another one with --data"
        )
    staging.mkdir(mode=0o700)
    try:
        yield staging
    except BaseException:
        _discard(data)
        raise


def _move(staging: Path, data: Path) -> None:
    """Move what was made to its place, on the same file system: each part whole or not at all."""
    sync_directory(staging)
    for part in PARTS:
        if (staging / part).exists():
            (staging / part).rename(data / part)
    sync_directory(data)  # before the UUID, with which the directory is complete
    identity_file(staging).rename(identity_file(data))
    sync_directory(data)
    for left in sorted(staging.iterdir()):  # the second copy of the UUID
        left.rename(data / left.name)
    staging.rmdir()


def _discard(data: Path) -> None:
    """Remove what a restoration that is not complete has left; the mark that it began goes last."""
    moved = [data / part for part in _moved(data)]
    for part in moved:
        shutil.rmtree(part, ignore_errors=True)
    if not any(part.exists() for part in moved):
        shutil.rmtree(restoration_directory(data), ignore_errors=True)


def _moved(data: Path) -> set[str]:
    """Return the parts that an interrupted restoration has moved to their places.

    It begins to move them when its UUID is written, which is there until the end.
    """
    staging = restoration_directory(data)
    if not identity_file(staging).exists():
        return set()
    return {part for part in PARTS if not (staging / part).exists()}


def _copy(content: Path, staging: Path, manifest: Manifest, on_progress: OnProgress) -> None:
    done, total = 0, manifest.used_bytes
    for path, expected in manifest.files.items():
        try:
            found = copy_file(content / path, staging / path, expected.used)
        except FileNotFoundError:
            raise _damaged(content / path, "it is missing") from None
        if found != expected:
            raise _damaged(content / path, _difference(found, expected))
        done += expected.used
        on_progress(path, done, total)


def _difference(found: FileSum, expected: FileSum) -> str:
    if found.size != expected.size:
        return f"it has {found.size} bytes, and had {expected.size}"
    return f"its CRC-32 is {found.crc32:08x}, and was {expected.crc32:08x}"


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} is damaged: {what}; use another backup")


def _open_queue(
    data: Path, name: str, restoration: Restoration, clock_ms: Callable[[], int]
) -> None:
    """Make the index of a queue from its log, and its control page; check and note its end."""
    topic, _, number = name.rpartition("/")
    queue_id = int(number)
    directory = shard_directory(data, topic, queue_id)
    first = found = 0
    with MessageStore(directory, clock_ms=clock_ms, adds_units=False, salvage=Salvage.ALL) as store:
        if store.reads.queues():
            first = store.reads.min_queue_offset(topic, queue_id)
            found = store.reads.max_queue_offset(topic, queue_id)
    if found != restoration.end:
        raise _damaged(directory, f"it ends at offset {found}, and ended at {restoration.end}")
    note_restoration(directory, restoration)
    page = ControlPage(control_path(data, topic, queue_id), create=True)
    page.publish_minimum(first)  # for who reads the files before a node runs there
    page.publish_visible(found)


def _check_name(backup: Path, manifest: Manifest, cluster: str | None) -> None:
    """Raise :class:`ConfigError` unless the disks of a cluster of several get a new name."""
    if cluster is not None:
        check_cluster(cluster)
    if is_of_several(manifest):
        if cluster is None:
            raise ConfigError(
                f"{backup} is of a cluster of several disks: name the restored cluster with "
                "--cluster NAME, the same for the backups of all its disks"
            )
    elif cluster is not None:
        raise ConfigError(
            f"{backup} is of a cluster with one disk, whose name is not in its files: leave "
            "--cluster out, and name the cluster when you start its node"
        )


def _check_target(data: Path, backup: Path) -> None:
    """Raise unless a directory is missing, or empty but for an interrupted restoration."""
    if data == backup or backup in data.parents:
        raise ConfigError(f"{data} is in the backup {backup}; name a directory elsewhere")
    if not data.exists():
        return
    if not data.is_dir():
        raise ConfigError(f"{data} is not a directory; name a new one with --data")
    if not is_own_directory(data):
        raise StoreError(f"{data} belongs to another user; name a directory of your own")
    there = sorted({path.name for path in data.iterdir()} - _IN_ANY - _moved(data))
    if there:
        raise ConfigError(
            f"{data} is not empty (it has {there[0]}), and nothing is restored over other files; "
            "name a new or an empty directory with --data"
        )
