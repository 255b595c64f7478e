"""A node's home: its data directory, identified by a UUID, and the Ray node that it is on.

    DATA/directory.json     {"version": 1, "uuid": …}

The version is that of the whole directory (file_form.py, rule 3).

A path does not identify a directory: on another machine, or before a disk is mounted, it may lead
to another directory or to none. So the first start of a node gives the directory a UUID, and every
actor that touches its files is told which UUID to expect.

Invariants
  1. Only the process that holds DATA/node.lock gives a directory its UUID, which never changes.
  2. An actor that finds another directory, or none, creates nothing there and raises.
  3. A directory whose restoration from a backup was interrupted gets no UUID, and is not used.
  4. Actors run where the directory is: on a Ray node whose label names it, else on the Ray node on
     which the node was started (ray_runtime.py).
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.file_form import FileForm
from rocketray.errors import DataDirectoryError, StoreError

from .node_lock import lock_file, lock_node
from .paths import identity_file, restoration_directory
from .private_files import DATA_MODE
from .state_files import read_state, write_json

_FORM = FileForm("directory.json")


@dataclass(frozen=True, slots=True)
class Home:
    """The place of its node's files, as it is passed to an actor.

    ``machine`` is the name of the machine that the node was started on. ``ray_node`` is the Ray
    node that the actors are bound to; it is empty if a label binds them. ``cluster`` is the name by
    which all find them in Ray. A directory that ``is_joined`` belongs to a cluster whose
    coordinator is on another disk. ``cluster_id``, with a coordinator, is the UUID of the directory
    on which the cluster began; it is empty if that is this one.
    """

    data: str
    uuid: str
    machine: str
    ray_node: str = ""
    cluster: str = DEFAULT_CLUSTER
    is_joined: bool = False
    cluster_id: str = ""

    @property
    def disk(self) -> str:
        """The disk's name in the catalog: empty for the disk that has the coordinator."""
        return self.uuid if self.is_joined else ""

    def directory(self) -> Path:
        """Return the data directory, which exists and has the expected UUID.

        Raises:
            DataDirectoryError: it does not.
            StoreError: the file with its UUID is damaged, or of another version.
        """
        directory = Path(self.data)
        found = _read_identity(directory)
        if found == self.uuid:
            return directory
        is_there = "there is no data directory" if found is None else f"it is {found}"
        raise DataDirectoryError(
            f"{directory} on {socket.gethostname()} is not data directory {self.uuid} of the node "
            f"started on {self.machine}: {is_there}; mount the right disk there, or stop the node "
            "and start it on the machine that has its disk"
        )


def identity_of(data: Path, mode: int = DATA_MODE) -> str:
    """Return the UUID of a data directory, which a node may use; create both if it has none.

    A directory that is missing is created with *mode*.

    Raises:
        StoreError: its file is damaged, and so is the copy; its restoration was interrupted; or
            this user cannot write there.
        StoreLockedError: a node starts there for the first time, in another process.
    """
    # Without the lock first: a running node holds it, and its UUID never changes (invariant 1).
    found = _read_identity(data)
    if found is not None:
        return found
    lock = lock_node(data, mode)
    try:
        return settle_identity(data)
    finally:
        os.close(lock)


def has_identity(data: Path, uuid: str) -> bool:
    """Return whether *data* is the data directory with that UUID, which then is on this machine.

    Raises:
        StoreError: the file with its UUID is damaged, and so is the copy.
    """
    return _read_identity(data) == uuid


def holds_messages(directory: Path) -> bool:
    """Return whether *directory* is a data directory, the content of a backup, or a store."""
    return (
        lock_file(directory).exists()
        or all((directory / part).is_dir() for part in ("config", "shards"))
        or (directory / "commitlog").is_dir()
    )


def settle_identity(data: Path, new: str | None = None) -> str:
    """Return the UUID of a data directory, and create one if it has none: *new*, or any.

    Only the holder of the directory's lock may call this. A damaged file is repaired from its copy
    (state_files.py).

    Raises:
        StoreError: neither the file nor its copy is valid; or its restoration was interrupted.
    """
    found = _read_identity(data, owns=True)
    if found is None:
        if restoration_directory(data).exists():
            raise StoreError(
                f"{data} has a part of a backup, as its restoration was interrupted: complete it "
                f"with: rocketray restore BACKUP --data {data}, which begins again; or remove "
                f"{data} and name another directory"
            )
        found = str(uuid.uuid4()) if new is None else new
        write_json(identity_file(data), _FORM.of({"uuid": found}))
    return found


def _read_identity(data: Path, *, owns: bool = False) -> str | None:
    return read_state(identity_file(data), _parsed, owns=owns)


def _parsed(value: dict[str, Any]) -> str:
    return str(uuid.UUID(_FORM.content(value)["uuid"]))
