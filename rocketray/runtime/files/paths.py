"""The paths of a node's files.

    DATA/node.json                      how to reach the running node
    DATA/ray_token                      the token that opens its own Ray; only its user can read it
    DATA/directory.json                 the identity of the directory (home.py)
    DATA/config/topics.json             the topics, in RocketMQ's form (topics/catalog.py)
    DATA/config/groups.json             the consumer groups (cluster/groups_file.py)
    DATA/config/namedFilters.json       named filters of topics (named_filters/filter_book.py)
    DATA/config/groupJournal/           the journals of the groups, a file for each
    DATA/config/disks.json              the disks that joined the cluster (disks/disk_register.py)
    DATA/config/moves.json              queues that move between disks (cluster/queue_moves.py)
    DATA/config/stagedBatches/          the writers of staged batches (staging/writer_ledger.py)
    DATA/config/register.json           where the documents are (cluster/registered_documents.py)
    DATA/config/joined.json             on a disk that joined: its cluster (disks/joined_cluster.py)
    DATA/coordinator/                   there, what the coordinator keeps when it runs in place of
                                        that of the first disk (cluster/standby.py), as in DATA
    DATA/shards/<topic>/<queueId>/      a store directory, and beside its files the `control` page
                                        and config/consumerFilter.json, the filters of its bitmaps
    DATA/copies/<topic>.<queueId>/      a queue that is being copied here (disks/queue_copy.py)
    DATA/restoring/                     a restoration that is not complete (backups/restore.py)
    DATA/staged/                        the fragments of staged batches (fragment_file.py)
    DATA/logs/                          which process logs where (process_logs/log_index.py), and
                                        the logs of processes that Ray did not start
    RUNTIME/                            rings and doorbells in shared memory, and the socket of
                                        commands, removed with the node

RUNTIME is on ``/dev/shm`` if that exists, else in DATA/run. Its name on ``/dev/shm`` can be
guessed, and every user can create directories there. If another user has created one of that name,
RUNTIME gets a name with a random end, and the link DATA/run leads to it (runtime_lock.py). Topic
names are checked before they are used here, so they are safe as directory names.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

CONTROL_PAGE = "control"
_RANDOM_END = "-[0-9a-f]{16}"  # of 8 random bytes: free_runtime_directory()
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own place for shared memory


def node_file(data: Path) -> Path:
    """Return the description of the running node."""
    return data / "node.json"


def token_file(data: Path) -> Path:
    """Return the file with the token of the node's own Ray."""
    return data / "ray_token"


def identity_file(data: Path) -> Path:
    return data / "directory.json"


def restoration_directory(data: Path) -> Path:
    """Return the directory in which a backup is restored; gone when it is complete."""
    return data / "restoring"


def config_directory(data: Path) -> Path:
    """Return the directory of the coordinator's state; a joined disk has a copy of some of it."""
    return data / "config"


def broadcast_directory(data: Path) -> Path:
    """Return the directory of broadcast offsets, for clients that name none of their own."""
    return data / "broadcast"


def journal_directory(data: Path) -> Path:
    return config_directory(data) / "groupJournal"


def writers_directory(data: Path) -> Path:
    """Return the directory of what is known of the writers of staged batches."""
    return config_directory(data) / "stagedBatches"


def staged_directory(data: Path) -> Path:
    return data / "staged"


def logs_of(data: Path) -> Path:
    """Return the directory of logs; those of Ray's processes are elsewhere, as its index says."""
    return data / "logs"


def log_index_file(data: Path) -> Path:
    """Return the file that says which process logs where."""
    return logs_of(data) / "processes.jsonl"


def filters_file(directory: Path) -> Path:
    """Return the file of a node's SQL92 filters, or of a shard's bitmaps; a broker's path."""
    return directory / "config" / "consumerFilter.json"


def coordinator_directory(data: Path) -> Path:
    """Return the directory of a coordinator that runs on a disk that joined."""
    return data / "coordinator"


def shard_directory(data: Path, topic: str, queue_id: int) -> Path:
    return data / "shards" / topic / str(queue_id)


def control_path(data: Path, topic: str, queue_id: int) -> Path:
    """Return the control page of one shard, by which readers know how far to read."""
    return shard_directory(data, topic, queue_id) / CONTROL_PAGE


def runtime_link(data: Path) -> Path:
    """Return the link to RUNTIME, which exists if RUNTIME does not have its usual name."""
    return data / "run"


def runtime_directory(data: Path) -> Path:
    """Return the directory of the node's shared memory; one per user and data directory."""
    if not (_SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)):
        return data / "run"
    usual = _SHARED_MEMORY / _runtime_name(data)
    try:
        linked = runtime_link(data).readlink()
    except OSError:
        return usual
    is_ours = re.fullmatch(re.escape(str(usual)) + _RANDOM_END, str(linked))
    return linked if is_ours else usual  # a link that was copied with DATA leads to another node's


def free_runtime_directory(data: Path) -> Path:
    """Return a name for RUNTIME that no other user can have guessed."""
    return _SHARED_MEMORY / f"{_runtime_name(data)}-{secrets.token_hex(8)}"


def runtime_directories() -> list[Path]:
    """Return the RUNTIME directories of this user's nodes, running or dead, also half-removed."""
    user = f"rocketray-{os.getuid()}"
    names = re.compile(rf"{user}-[0-9a-f]{{16}}({_RANDOM_END})?(\.[0-9a-f]{{32}}\.removed)?")
    if not _SHARED_MEMORY.is_dir():
        return []
    # No link: another user may have put one there that leads to files of ours.
    return [
        path
        for path in sorted(_SHARED_MEMORY.iterdir())
        if names.fullmatch(path.name) and not path.is_symlink() and path.is_dir()
    ]


def _runtime_name(data: Path) -> str:
    # 64 bits of it: the name of the socket below RUNTIME may have 107 bytes in all.
    digest = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]
    return f"rocketray-{os.getuid()}-{digest}"


def producer_rings_directory(data: Path, topic: str, queue_id: int) -> Path:
    """Return the directory of the rings from the node's producers to one shard."""
    return runtime_directory(data) / "producers" / topic / str(queue_id)


def consumer_directory(data: Path) -> Path:
    """Return the directory of the match rings and doorbells of the node's consumers."""
    return runtime_directory(data) / "consumers"


def fetch_port_file(data: Path) -> Path:
    """Return the port on which the operator wants the node's fetch service to listen."""
    return runtime_directory(data) / "fetch-port"


def fetch_failure_file(data: Path) -> Path:
    """Return why the node's fetch service does not listen, if that is so."""
    return runtime_directory(data) / "fetch-failure"


def fetch_lock_file(data: Path) -> Path:
    """Return the lock of the process that serves the port of the node's fetch service."""
    return runtime_directory(data) / "fetch-service.lock"


def fetch_service_file(data: Path) -> Path:
    """Return the port, the token and the key of the node's fetch service."""
    return runtime_directory(data) / "fetch-service.json"


def process_doorbell_path(data: Path, process: str) -> Path:
    """Return the doorbell that producers ring for all shards of one process."""
    return runtime_directory(data) / "processes" / process


def local_socket(data: Path) -> Path:
    """Return the socket on which the node's process answers commands on its machine."""
    return runtime_directory(data) / "calls"


def filter_doorbell_path(data: Path) -> Path:
    """Return the doorbell that shards ring for the filter actor, and whose rings others watch."""
    return runtime_directory(data) / "filter-doorbell"
