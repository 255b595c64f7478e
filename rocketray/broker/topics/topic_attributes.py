"""Attributes of a topic in ``topics.json``, from their text; absent ones have an older meaning."""

from __future__ import annotations

import re
import uuid

from rocketray.base.names import SHARED, QueuesPerProcess, check_queues_per_process
from rocketray.base.system_topics import is_internal_by_name
from rocketray.errors import ConfigError
from rocketray.store.retention import RetentionPolicy

_TOPIC_ID_FORM = re.compile(r"[0-9a-f]{32}", re.ASCII)
# A name space of no other meaning; with another one, old topics would have other ids.
_IDS_OF_OLD_TOPICS = uuid.UUID("6f1c2a52-9d0e-4b0c-8a7c-3f5e0f6f9d11")


def processes_in(written: str | None, name: str, queues: int) -> tuple[int, ...]:
    """Return the stored numbers; a topic older than they has a process for each queue.

    System topics of that age are in the shared process, as those of any age.
    """
    if written is None:
        return () if is_internal_by_name(name) else tuple(range(queues))
    processes = tuple(map(int, filter(None, written.split(","))))
    if any(process < 0 for process in processes):
        raise ConfigError(f"topics.json: topic {name!r} has a process below 0")
    return processes


def disks_in(written: str | None) -> tuple[str, ...]:
    """Return the disk of each queue; none if all are on the coordinator's."""
    if written is None:
        return ()
    return tuple(str(uuid.UUID(disk)) if disk else "" for disk in written.split(","))


def queues_per_process_in(written: str | None) -> QueuesPerProcess:
    """Return what was asked for when the topic was created."""
    if written is None:
        return None
    return check_queues_per_process(written if written == SHARED else int(written))


def retention_in(age_ms: str | None, size: str | None, *, compacts: bool) -> RetentionPolicy:
    return RetentionPolicy(
        None if age_ms is None else int(age_ms),
        None if size is None else int(size),
        compacts=compacts,
    )


def topic_id_in(written: str | None, name: str, first_host: tuple[str, int]) -> str:
    """Return the stored id; for a topic older than ids, one derived from its first store host.

    Store hosts are never reused, and the first one stays, so that id is the same at each load.
    """
    if written is None:
        ip, port = first_host
        return uuid.uuid5(_IDS_OF_OLD_TOPICS, f"{name}@{ip}:{port}").hex
    if not _TOPIC_ID_FORM.fullmatch(written):
        raise ConfigError(f"the id {written!r:.80} of topic {name!r} is not 32 hexadecimal digits")
    return written
