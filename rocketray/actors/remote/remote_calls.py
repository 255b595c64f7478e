"""The calls and values between members on other nodes and the gateway of the shards' node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rocketray.actors.calls.endpoint import GATEWAY_NAME, Endpoint
from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.groups.member_options import MemberOptions
from rocketray.filters.subscription import Subscription

__all__ = ["GATEWAY", "POLL_MAX_S", "CommitReply", "GatewayApi", "JoinRequest", "PollReply"]

POLL_MAX_S = 15.0  # as long as RocketMQ's brokers suspend a pull


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The arguments with which a member joins; ``options`` are those of :class:`GroupConsumer`."""

    group: str
    topic: str
    subscription: Subscription
    options: MemberOptions


class PollReply(NamedTuple):
    """The reply to a poll: ``frames`` are packed records.

    ``number`` counts the replies to a member; its next poll names the last one that it received.
    ``revocation`` counts the revocations; the frames have nothing of the queues revoked by then.
    ``revoked`` are the queues that the member has to release next.
    """

    number: int
    frames: list[bytes]
    assignment: frozenset[int]
    revocation: int = 0
    revoked: frozenset[int] = frozenset()


class CommitReply(NamedTuple):
    """The member's lease, counted from its request, and the revocation, as in ``PollReply``."""

    lease_ms: int
    revocation: int = 0
    revoked: frozenset[int] = frozenset()


class GatewayApi(Protocol):
    """The calls of a node's gateway; see ``RemoteMembers``."""

    def join(self, name: str, request: JoinRequest) -> None:
        """Create a proxy of that name unless it exists."""
        ...

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        """Wait for the reply after the one of number *received*."""
        ...

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Pass on commits; *number* grows from call to call, here and below."""
        ...

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Pass on how many messages were sent back and dead-lettered since the member joined."""
        ...

    def report_failing(self, name: str, failing: Mapping[int, FailingMessage]) -> None:
        """Pass on the messages at which the member holds queues."""
        ...

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """Have the proxy pause these queues, and no others."""
        ...

    def give_up(self, name: str, revocation: int, commits: Mapping[int, int], number: int) -> None:
        """Confirm that the queues of that revocation are released."""
        ...

    def leave(self, name: str, commits: Mapping[int, int], number: int) -> None:
        """Leave the group."""
        ...


GATEWAY = Endpoint(GATEWAY_NAME, GatewayApi)
