"""Suggestions for a group or a key that does not exist: the most similar existing ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocketray.base.meant import meant
from rocketray.messaging.api.node_client import NodeClient

_MOST = 3
_NEWEST = 64  # messages of all topics whose keys are compared


def like(wanted: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names those of *known* similar to *wanted*; "" for none."""
    found = meant(wanted, sorted(known), most=_MOST)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def like_keys(node: NodeClient, wanted: str, topics: Sequence[str]) -> str:
    """Return the same as :func:`like`, for the keys of the newest messages of *topics*."""
    shards = [shard for topic in topics for shard in node.shard_statistics(topic)]
    keys: set[str] = set()
    for shard in shards[:_NEWEST]:
        count = max(_NEWEST // len(shards), 1)
        first = max(shard.max_queue_offset - count, shard.min_queue_offset)
        for offset in range(first, shard.max_queue_offset):
            message = node.messages.at(shard.topic, shard.queue_id, offset)
            keys.update(() if message is None else message.keys)
    return like(wanted, keys)
