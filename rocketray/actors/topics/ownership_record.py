"""The record of a new owner in a queue that owners write, such as one of a table's changelog.

A shard stores it before the first batch of an owner, so the log itself says whose batches it no
longer takes, after a restart and on another disk, too (``shards/ownership_fence.py``). It is a
message with a key of its own, by which it is found, and of which compaction keeps the last one.
Readers of the queue pass over it.
"""

from __future__ import annotations

from rocketray.message import SHARDING_KEY, Message, StoredMessage

__all__ = ["OWNERSHIP_KEY", "epoch_of", "ownership_record"]

OWNERSHIP_KEY = "OWNERSHIP_EPOCH"
"""The key of the record, and its property with the epoch."""


def ownership_record(topic: str, epoch: int) -> Message:
    """Return the record of the owner with that ownership epoch."""
    return Message(
        topic, b"%d" % epoch, keys=[OWNERSHIP_KEY], properties={OWNERSHIP_KEY: str(epoch)}
    )


def epoch_of(stored: StoredMessage) -> int | None:
    """Return the epoch in an ownership record; None for any other message."""
    epoch = stored.properties.get(OWNERSHIP_KEY, "")
    is_record = OWNERSHIP_KEY in stored.keys and SHARDING_KEY not in stored.properties
    return int(epoch) if is_record and epoch.isascii() and epoch.isdigit() else None
