"""Seek: moving a group to other offsets, planned first and then carried out while members run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rocketray.base.names import is_retry_topic
from rocketray.errors import ConfigError, OffsetOutOfRangeError, ShardUnavailableError, StreamError
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.groups.groups_api import GroupsApi
from rocketray.messaging.api.node_client import NodeClient

Target = Literal["earliest", "latest"]
_LOOK_S = 0.1  # members that rebalance report as often


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """The position of a group in one queue, -1 for none yet, and the position to move to.

    ``skipped`` and ``repeated`` count all messages between the two, including messages that the
    group's filter rejects.
    """

    group: str
    topic: str
    queue_id: int
    from_offset: int
    to_offset: int

    @property
    def skipped(self) -> int:
        """Number of messages that the group has not had and will not get."""
        return max(0, self.to_offset - self.from_offset) if self.from_offset >= 0 else 0

    @property
    def repeated(self) -> int:
        """Number of messages that the group has had and will get again."""
        return max(0, self.from_offset - self.to_offset)


def plan_moves(
    node: NodeClient,
    groups: Sequence[GroupDescription],
    *,
    to: Target | None = None,
    time_ms: int | None = None,
    offset: int | None = None,
    queue_id: int | None = None,
) -> list[OffsetMove]:
    """Return the moves of *groups* to one of *to*, *time_ms* and *offset*, in one queue or in all.

    Raises:
        ConfigError: there is no such queue.
        OffsetOutOfRangeError: the queue does not hold *offset*.
    """
    moves = []
    for group in groups:
        statistics = node.shard_statistics(group.topic)
        if queue_id is not None and queue_id >= len(statistics):
            raise ConfigError(
                f"topic {group.topic!r} has no queue {queue_id}; its queues are 0 to "
                f"{len(statistics) - 1}"
            )
        for queue, shard in enumerate(statistics):
            if queue_id in (None, queue):
                first, end = shard.min_queue_offset, shard.max_queue_offset
                if time_ms is not None:
                    goal = node.messages.offset_at_time(group.topic, queue, time_ms)
                elif offset is not None:
                    if not first <= offset <= end:  # at the end, a group gets what comes next
                        where = f"queue {group.topic}/{queue}"
                        raise OffsetOutOfRangeError(where, offset, first, end + 1)
                    goal = offset
                else:
                    goal = first if to == "earliest" else end
                before = group.offsets.get(queue, -1)
                moves.append(OffsetMove(group.group, group.topic, queue, before, goal))
    return moves


def plan_clone(
    groups: Sequence[GroupDescription], source: str, group: str, topic: str | None = None
) -> list[OffsetMove]:
    """Return the moves of *group* to the offsets of group *source*, in *topic* or in all.

    Queues in which *source* has no offset yet are left out, and so is its retry topic: its failed
    messages come back to *source* alone.

    Raises:
        ConfigError: *source* has no offset to clone, or its members keep its offsets; or both are
            the same group.
    """
    if source == group:
        raise ConfigError(f"group {group!r} cannot be cloned to itself; name another group")
    there = {each.topic: each.offsets for each in groups if each.group == group}
    moves = []
    for each in sorted(groups, key=lambda found: found.topic):
        is_meant = topic == each.topic if topic else not is_retry_topic(each.topic, source)
        if each.group != source or not is_meant:
            continue
        if each.is_broadcast:
            raise ConfigError(
                f"group {source!r} gets topic {each.topic!r} in broadcast mode: its members keep "
                "their own offsets, so the node has none to clone; name another topic with --topic"
            )
        before = there.get(each.topic, {})
        moves += [
            OffsetMove(group, each.topic, queue, before.get(queue, -1), offset)
            for queue, offset in sorted(each.offsets.items())
            if offset >= 0
        ]
    if not moves:
        where = "any topic" if topic is None else f"topic {topic!r}"
        raise ConfigError(f"group {source!r} has no offset in {where}; see: rocketray groups list")
    return moves


def carry_out(
    groups: GroupsApi,
    moves: Sequence[OffsetMove],
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
    *,
    clock_s: Callable[[], float] = time.monotonic,
    who: str = "",
    like: str = "",
) -> None:
    """Move the offsets; wait until members have released the queues and resumed at the new offsets.

    A coordinator that restarts meanwhile still has the orders. *who* moves the group: the group's
    journal records it for explanations. A group that does not read one of the topics yet subscribes
    to it as group *like*, if that is given.

    Raises:
        StreamError: after *timeout_s*, for all groups and topics together, members still own
            queues, which move as soon as they are released.
    """
    orders: dict[tuple[str, str], dict[int, int]] = {}
    for move in moves:
        orders.setdefault((move.group, move.topic), {})[move.queue_id] = move.to_offset
    end_s = clock_s() + timeout_s
    # One order for all queues of a group in a topic: the coordinator saves it as a whole. All are
    # given before the first wait, whose members may keep the others waiting for all of the time.
    names = {place: groups.move_offsets(*place, orders[place], who, like) for place in orders}
    for (group, topic), name in names.items():
        while left := _left(groups, group, topic, name, {*orders[group, topic]}):
            if clock_s() >= end_s:
                raise StreamError(
                    f"members of group {group!r} still hold queues {sorted(left)} of topic "
                    f"{topic!r}: their offsets move as soon as the members release them"
                )
            sleep(_LOOK_S)


def _left(groups: GroupsApi, group: str, topic: str, name: str, targets: set[int]) -> set[int]:
    """Return the queues still to be moved: all of them if the coordinator is unavailable."""
    try:
        return groups.moves_left(group, topic, name)
    except ShardUnavailableError:
        return targets
