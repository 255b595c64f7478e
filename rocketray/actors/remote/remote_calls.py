"""What members on other nodes and the gateway of the shards' node say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.groups.member_options import MemberOptions
from rocketray.filters.subscription import Subscription

__all__ = ["POLL_MAX_S", "CommitReply", "Gateway", "JoinRequest", "PollReply"]

POLL_MAX_S = 15.0  # as RocketMQ's brokers suspend a pull


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a member joins with; ``options`` are those of :class:`GroupConsumer`."""

    group: str
    topic: str
    subscription: Subscription
    options: MemberOptions


class PollReply(NamedTuple):
    """What a poll brings: ``frames`` are packed records.

    ``number`` counts the replies to a member, which names the last one that it got in its next
    poll. ``revocation`` counts how often queues were revoked; what was revoked then is not in the
    frames. ``revoked`` are queues that the member has to give up next.
    """

    number: int
    frames: list[bytes]
    assignment: frozenset[int]
    revocation: int = 0
    revoked: frozenset[int] = frozenset()


class CommitReply(NamedTuple):
    """The member's lease from when it asked on, and what it has to give up, as in a poll's reply."""

    lease_ms: int
    revocation: int = 0
    revoked: frozenset[int] = frozenset()


class Gateway(Protocol):
    """The calls of a node's gateway; see :class:`~.remote_members.RemoteMembers`."""

    def join(self, name: str, request: JoinRequest) -> None:
        """Make a stand-in of that name, unless there is one."""

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        """Wait for what comes after the reply of number *received*."""

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Pass on what is finished; *number* grows from call to call, as below."""

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Pass on how many messages were given back."""

    def report_failing(self, name: str, failing: Mapping[int, FailingMessage]) -> None:
        """Pass on at which messages the member holds queues."""

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """Say which queues, and no others, the stand-in reads no further for now."""

    def give_up(self, name: str, revocation: int, commits: Mapping[int, int], number: int) -> None:
        """Say that the queues of that revocation are given up."""

    def leave(self, name: str, commits: Mapping[int, int], number: int) -> None:
        """Leave the group."""
