"""Assignment strategies: the division of a topic's queues among the members of a group.

Each strategy is a pure function of the queue numbers of one topic, the members and, for
``sticky``, the present owners. It returns the owner of each queue.

Invariants
  1. Every queue has exactly one owner as long as there is a member.
  2. Equal arguments give equal results, in every process.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal, cast, get_args

from rocketray.errors import ConfigError

Strategy = Literal["averagely", "by_circle", "consistent_hash", "sticky"]

_BROKER_NAME = "rocketray"  # part of the queue names that consistent_hash hashes
_VIRTUAL_NODES = 10  # RocketMQ's number: another one would divide the same queues differently


def check_strategy(name: str) -> Strategy:
    """Return *name*; raise :class:`ConfigError` unless there is a strategy of that name."""
    known = get_args(Strategy)
    if name not in known:
        raise ConfigError(f"there is no strategy {name!r}; give one of: {', '.join(known)}")
    return cast("Strategy", name)


def divide(
    strategy: Strategy,
    topic: str,
    queues: int,
    members: Collection[str],
    owners: Mapping[int, str],
) -> dict[int, str]:
    """Return the owner that each queue of *topic* should have; empty without members."""
    if strategy == "by_circle":
        return by_circle(queues, members)
    if strategy == "consistent_hash":
        return consistent_hash(topic, queues, members)
    if strategy == "sticky":
        return sticky(queues, members, owners)
    return averagely(queues, members)


def averagely(queues: int, members: Collection[str]) -> dict[int, str]:
    """Assign contiguous shares, the first ones larger: ``AllocateMessageQueueAveragely``."""
    names = sorted(members)  # as RocketMQ sorts client ids: the order of joining decides nothing
    shares: dict[int, str] = {}
    for index, name in enumerate(names):
        size = queues // len(names) + (index < queues % len(names))
        shares |= dict.fromkeys(range(len(shares), len(shares) + size), name)
    return shares


def by_circle(queues: int, members: Collection[str]) -> dict[int, str]:
    """Assign the queues round-robin: RocketMQ's ``AllocateMessageQueueAveragelyByCircle``."""
    names = sorted(members)
    return {queue: names[queue % len(names)] for queue in range(queues)} if names else {}


def consistent_hash(
    topic: str, queues: int, members: Collection[str], broker: str = _BROKER_NAME
) -> dict[int, str]:
    """Assign by a hash ring with ten virtual nodes for each member.

    A queue belongs to the first virtual node at or behind its own hash. When a member joins or
    leaves, only queues of that member move; shares are equal on average only.

    As RocketMQ ``AllocateMessageQueueConsistentHash``.
    """
    ring = {
        _ring_hash(f"{name}-{number}"): name
        for name in sorted(members)  # of two virtual nodes with one hash the later one wins
        for number in range(_VIRTUAL_NODES)
    }
    places = sorted(ring)
    shares = {}
    for queue in range(queues) if places else ():
        name = f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue}]"
        shares[queue] = ring[places[bisect_left(places, _ring_hash(name)) % len(places)]]
    return shares


def sticky(queues: int, members: Collection[str], owners: Mapping[int, str]) -> dict[int, str]:
    """Assign equal shares with the fewest moves: an owner keeps its first queues, up to its share.

    The members that own more queues now get the larger shares. *owners* may lack queues, and may
    name members that have left.
    """
    owned = Counter(name for queue, name in owners.items() if queue < queues and name in members)
    by_size = sorted(members, key=lambda name: (-owned[name], name))
    if not by_size:
        return {}
    size, larger = divmod(queues, len(by_size))
    room = {name: size + (index < larger) for index, name in enumerate(by_size)}
    shares: dict[int, str] = {}
    for queue in range(queues):
        name = owners.get(queue)
        if name is not None and room.get(name):
            shares[queue] = name
            room[name] -= 1
    free = (queue for queue in range(queues) if queue not in shares)
    for name in by_size:
        shares |= {next(free): name for _ in range(room[name])}
    return shares


def _ring_hash(text: str) -> int:
    """Return the first four bytes of the MD5 digest, unsigned, as RocketMQ ``MD5Hash``."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
