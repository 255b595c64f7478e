"""The record of a new owner in a queue that owners write, such as one of a table's changelog.

A shard stores it before the first batch of an owner, so the log itself says whose batches it no
longer takes, after a restart and on another disk, too (``shards/ownership_fence.py``). It is a
message with a key of its own, by which it is found, and of which compaction keeps the last one.
The reader of a table's part skips it; other readers of the topic, such as
groups and Spark, see a message without a sharding key.
"""

from __future__ import annotations

from rocketray.groups.ownership_epochs import NOTED_MAX
from rocketray.message import SHARDING_KEY, Message, StoredMessage

OWNERSHIP_KEY = "OWNERSHIP_EPOCH"
"""The key of the record, and its property with the epoch."""
_DIGITS_MAX = len(str(NOTED_MAX))


def ownership_record(topic: str, epoch: int) -> Message:
    return Message(
        topic, b"%d" % epoch, keys=[OWNERSHIP_KEY], properties={OWNERSHIP_KEY: str(epoch)}
    )


def epoch_of(stored: StoredMessage) -> int | None:
    """Return the epoch in an ownership record; None for any other message.

    A program may send what looks like one. So an epoch that no counter gives is none.
    """
    text = stored.properties.get(OWNERSHIP_KEY)  # first: most messages are changes
    if text is None or OWNERSHIP_KEY not in stored.keys or SHARDING_KEY in stored.properties:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    epoch = int(text)
    return epoch if 1 <= epoch <= NOTED_MAX else None
