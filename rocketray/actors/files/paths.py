"""Where a node's files lie.

    DATA/node.json                      how to reach the running node
    DATA/ray_token                      the token that opens its own Ray; only its user can read it
    DATA/directory.json                 which directory it is (home.py)
    DATA/config/topics.json …           the coordinator's state, in RocketMQ's forms
    DATA/config/groupJournal/           what happened to the groups, a file for each
    DATA/shards/<topic>/<queueId>/      a store directory, and beside its files the `control` page
                                        and config/consumerFilter.json, which its bitmaps are of
    RUNTIME/                            rings and doorbells: shared memory, gone with the node

RUNTIME is on ``/dev/shm`` where there is one, else in DATA/run. Its name there can be guessed, and
everybody can make directories there. Where another user has made one of that name, RUNTIME gets a
name with a random end, and the link DATA/run leads to it (runtime_lock.py).
Names of topics were checked before they come here, so they are safe as directory names.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

__all__ = [
    "CONTROL_PAGE",
    "broadcast_directory",
    "config_directory",
    "consumer_directory",
    "control_path",
    "filter_doorbell_path",
    "filters_file",
    "free_runtime_directory",
    "host_doorbell_path",
    "identity_file",
    "journal_directory",
    "node_file",
    "producer_rings_directory",
    "runtime_directories",
    "runtime_directory",
    "runtime_link",
    "shard_directory",
    "token_file",
]

CONTROL_PAGE = "control"
_RANDOM_END = "-[0-9a-f]{16}"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own place for shared memory


def node_file(data: Path) -> Path:
    """The description of the running node."""
    return data / "node.json"


def token_file(data: Path) -> Path:
    """The token of the node's own Ray."""
    return data / "ray_token"


def identity_file(data: Path) -> Path:
    """Which directory it is."""
    return data / "directory.json"


def config_directory(data: Path) -> Path:
    """The coordinator's state."""
    return data / "config"


def broadcast_directory(data: Path) -> Path:
    """How far clients of broadcast groups are, where they name no directory of their own."""
    return data / "broadcast"


def journal_directory(data: Path) -> Path:
    """The journals of consumer groups."""
    return config_directory(data) / "groupJournal"


def filters_file(directory: Path) -> Path:
    """The registered SQL92 filters of a node, or of one shard's bitmaps, where a broker has them."""
    return directory / "config" / "consumerFilter.json"


def shard_directory(data: Path, topic: str, queue_id: int) -> Path:
    """The store directory of one shard."""
    return data / "shards" / topic / str(queue_id)


def control_path(data: Path, topic: str, queue_id: int) -> Path:
    """The control page of one shard."""
    return shard_directory(data, topic, queue_id) / CONTROL_PAGE


def runtime_link(data: Path) -> Path:
    """A link to RUNTIME, where that could not have its usual name."""
    return data / "run"


def runtime_directory(data: Path) -> Path:
    """The directory of the node's shared memory; one per user and data directory."""
    if not (_SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)):
        return data / "run"
    usual = _SHARED_MEMORY / _runtime_name(data)
    try:
        linked = runtime_link(data).readlink()
    except OSError:
        return usual
    is_ours = re.fullmatch(re.escape(str(usual)) + _RANDOM_END, str(linked))
    return linked if is_ours else usual  # one that was copied with DATA leads to another node's


def free_runtime_directory(data: Path) -> Path:
    """A name for RUNTIME that nobody can have guessed."""
    return _SHARED_MEMORY / f"{_runtime_name(data)}-{secrets.token_hex(8)}"


def runtime_directories() -> list[Path]:
    """The RUNTIME directories of this user's nodes: of living and dead ones, or half removed."""
    user = f"rocketray-{os.getuid()}"
    names = re.compile(rf"{user}-[0-9a-f]{{16}}({_RANDOM_END})?(\.[0-9a-f]{{32}}\.removed)?")
    if not _SHARED_MEMORY.is_dir():
        return []
    return [
        path
        for path in sorted(_SHARED_MEMORY.iterdir())
        if names.fullmatch(path.name) and not path.is_symlink() and path.is_dir()
    ]


def _runtime_name(data: Path) -> str:
    digest = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]
    return f"rocketray-{os.getuid()}-{digest}"


def producer_rings_directory(data: Path, topic: str, queue_id: int) -> Path:
    """The rings through which the node's producers reach one shard."""
    return runtime_directory(data) / "producers" / topic / str(queue_id)


def consumer_directory(data: Path) -> Path:
    """The match rings and doorbells of the node's consumers."""
    return runtime_directory(data) / "consumers"


def host_doorbell_path(data: Path) -> Path:
    """The doorbell that producers ring for all shards of the node's shard host."""
    return runtime_directory(data) / "host-doorbell"


def filter_doorbell_path(data: Path) -> Path:
    """The doorbell that wakes the node's filter actor."""
    return runtime_directory(data) / "filter-doorbell"
