"""How queues are divided among the members of a group: pure functions, nothing is kept.

Each strategy takes the queue numbers of one topic, the members and, where it cares, who owns what
now. It answers who should own what, so every queue has exactly one owner as long as there is a
member. The answer depends on nothing else: all who ask with the same arguments hear the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

__all__ = ["averagely", "sticky"]


def averagely(queues: int, members: Iterable[str]) -> dict[int, str]:
    """RocketMQ's ``AllocateMessageQueueAveragely``: contiguous shares, the first ones larger."""
    names = sorted(members)
    shares: dict[int, str] = {}
    for index, name in enumerate(names):
        size = queues // len(names) + (index < queues % len(names))
        shares |= dict.fromkeys(range(len(shares), len(shares) + size), name)
    return shares


def sticky(queues: int, members: Collection[str], owners: Mapping[int, str]) -> dict[int, str]:
    """Equal shares with the fewest moves: an owner keeps its first queues, up to its share.

    Whoever owns more now gets the larger shares. *owners* may lack queues, and name members that
    are gone. The answer stays the same while queues are given up and taken as it says.
    """
    if not members:
        return {}
    owned = Counter(name for queue, name in owners.items() if queue < queues and name in members)
    by_size = sorted(members, key=lambda name: (-owned[name], name))
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
