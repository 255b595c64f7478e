"""The gateway's interface for members on other nodes: each call is a call of the gateway actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.remote.remote_calls import CommitReply, JoinRequest, PollReply

from .actor_names import GATEWAY_NAME, find_actor

__all__ = ["GatewayCalls"]


class GatewayCalls:
    """The calls of ``RemoteMembers`` (remote/remote_members.py); *ask* waits for a result."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask

    def join(self, name: str, request: JoinRequest) -> None:
        """Create a proxy of that name unless it exists."""
        self._ask(find_actor(GATEWAY_NAME).join.remote(name, request))

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        """Wait for the reply after the one of number *received*."""
        reply: PollReply = self._ask(
            find_actor(GATEWAY_NAME).poll.remote(name, timeout_s, received)
        )
        return reply

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Pass on commits."""
        reply: CommitReply = self._ask(
            find_actor(GATEWAY_NAME).commit.remote(name, commits, number)
        )
        return reply

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Pass on how many messages were sent back and dead-lettered."""
        actor = find_actor(GATEWAY_NAME)
        self._ask(actor.count_returns.remote(name, sent_back, dead_lettered))

    def report_failing(self, name: str, failing: Mapping[int, FailingMessage]) -> None:
        """Pass on the messages at which the member holds queues."""
        self._ask(find_actor(GATEWAY_NAME).report_failing.remote(name, failing))

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """Have the proxy pause these queues, and no others."""
        self._ask(find_actor(GATEWAY_NAME).leave_alone.remote(name, queue_ids))

    def give_up(
        self, name: str, revocation: int, commits: Mapping[int, int], number: int = 0
    ) -> None:
        """Confirm that the revoked queues are released."""
        self._ask(find_actor(GATEWAY_NAME).give_up.remote(name, revocation, commits, number))

    def leave(self, name: str, commits: Mapping[int, int], number: int = 0) -> None:
        """Leave the group."""
        self._ask(find_actor(GATEWAY_NAME).leave.remote(name, commits, number))
