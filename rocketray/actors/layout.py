"""Where a node's files lie.

    DATA/node.json                      how to reach the running node
    DATA/config/topics.json …           the coordinator's state, in RocketMQ's forms
    DATA/shards/<topic>/<queueId>/      a store directory, and beside its files the `control` page
                                        and config/consumerFilter.json, which its bitmaps are of
    RUNTIME/                            rings and doorbells: shared memory, gone with the node

RUNTIME is on ``/dev/shm`` where there is one, else in DATA/run. Names of topics were checked
before they come here, so they are safe as directory names.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

__all__ = [
    "CONTROL_PAGE",
    "config_directory",
    "consumer_directory",
    "control_path",
    "filter_doorbell_path",
    "filters_file",
    "host_doorbell_path",
    "node_file",
    "producer_rings_directory",
    "runtime_directories",
    "runtime_directory",
    "shard_directory",
]

CONTROL_PAGE = "control"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own place for shared memory


def node_file(data: Path) -> Path:
    """The description of the running node."""
    return data / "node.json"


def config_directory(data: Path) -> Path:
    """The coordinator's state."""
    return data / "config"


def filters_file(directory: Path) -> Path:
    """The registered SQL92 filters of a node, or of one shard's bitmaps, where a broker has them."""
    return directory / "config" / "consumerFilter.json"


def shard_directory(data: Path, topic: str, queue_id: int) -> Path:
    """The store directory of one shard."""
    return data / "shards" / topic / str(queue_id)


def control_path(data: Path, topic: str, queue_id: int) -> Path:
    """The control page of one shard."""
    return shard_directory(data, topic, queue_id) / CONTROL_PAGE


def runtime_directory(data: Path) -> Path:
    """The directory of the node's shared memory; one per user and data directory."""
    if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK):
        digest = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]
        return _SHARED_MEMORY / f"rocketray-{os.getuid()}-{digest}"
    return data / "run"


def runtime_directories() -> list[Path]:
    """The RUNTIME directories of this user's nodes: of living and dead ones, or half removed."""
    names = re.compile(rf"rocketray-{os.getuid()}-[0-9a-f]{{16}}(\.[0-9a-f]{{32}}\.removed)?")
    if not _SHARED_MEMORY.is_dir():
        return []
    return [
        path
        for path in sorted(_SHARED_MEMORY.iterdir())
        if names.fullmatch(path.name) and not path.is_symlink() and path.is_dir()
    ]


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
