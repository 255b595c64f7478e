"""A node's home: its data directory, known by a UUID, and the Ray node that has it.

    DATA/directory.json     {"version": 1, "uuid": …}

A path says little: on another machine, or before a disk is mounted, something else is there or
nothing. So the first start of a node gives the directory a UUID, and every actor that touches its
files is told which one it is to find.

Invariants
  1. Only the process that holds DATA/node.lock gives a directory its UUID. It keeps it for good.
  2. An actor that finds another directory, or none, makes nothing there and raises.
  3. Actors run where the directory is: on a Ray node whose label names it, else on the very Ray
     node that the node was started on (ray_runtime.py).
"""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.errors import DataDirectoryError

from .paths import identity_file
from .state_files import read_state, write_json

__all__ = ["Home", "settle_identity"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Home:
    """Where an actor finds its node's files.

    ``machine`` is the name of the machine that the node was started on. ``ray_node`` is the Ray
    node that the actors are bound to; it is empty where a label binds them.
    """

    data: str
    uuid: str
    machine: str
    ray_node: str = ""

    def directory(self) -> Path:
        """The data directory, which is there and is the right one.

        Raises:
            DataDirectoryError: it is not.
        """
        directory = Path(self.data)
        found = _read_identity(directory)
        if found == self.uuid:
            return directory
        is_there = "there is no data directory" if found is None else f"it is {found}"
        raise DataDirectoryError(
            f"{directory} on {socket.gethostname()} is not data directory {self.uuid} of the node "
            f"started on {self.machine}: {is_there}; mount the right disk there, or stop the node "
            "and start it where its disk is"
        )


def settle_identity(data: Path) -> str:
    """The UUID of a data directory, which gets one if it has none; for who holds its lock.

    A damaged file is mended from its copy (state_files.py).

    Raises:
        StoreError: what stands there, and its copy, is not ours.
    """
    found = _read_identity(data, owns=True)
    if found is None:
        found = str(uuid.uuid4())
        write_json(identity_file(data), {"version": _VERSION, "uuid": found})
    return found


def _read_identity(data: Path, *, owns: bool = False) -> str | None:
    path = identity_file(data)
    found = read_state(path, _parsed, owns=owns)
    if found is None:
        return None
    version, identity = found
    if version > _VERSION:
        raise DataDirectoryError(
            f"{path} has version {version}, and this rocketray reads up to {_VERSION}; use the one "
            "that wrote it"
        )
    return identity


def _parsed(value: dict[str, Any]) -> tuple[int, str]:
    version, identity = value["version"], str(value["uuid"])
    if not isinstance(version, int):
        raise TypeError(f"version {version!r}")
    if version <= _VERSION:
        identity = str(uuid.UUID(identity))
    return version, identity
