"""A gateway as members on other nodes see it: each call a remote one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.remote.remote_calls import CommitReply, JoinRequest, PollReply

from .actor_names import GATEWAY_NAME, find_actor

__all__ = ["GatewayCalls"]


class GatewayCalls:
    """See :class:`~rocketray.actors.remote.remote_members.RemoteMembers`; *ask* waits for an answer."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask

    def join(self, name: str, request: JoinRequest) -> None:
        """Make a stand-in of that name, unless there is one."""
        self._ask(find_actor(GATEWAY_NAME).join.remote(name, request))

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        """Wait for what comes after the reply of number *received*."""
        reply: PollReply = self._ask(
            find_actor(GATEWAY_NAME).poll.remote(name, timeout_s, received)
        )
        return reply

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Pass on what is finished."""
        reply: CommitReply = self._ask(
            find_actor(GATEWAY_NAME).commit.remote(name, commits, number)
        )
        return reply

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Pass on how many messages were given back."""
        actor = find_actor(GATEWAY_NAME)
        self._ask(actor.count_returns.remote(name, sent_back, dead_lettered))

    def report_failing(self, name: str, failing: Mapping[int, FailingMessage]) -> None:
        """Pass on at which messages the member holds queues."""
        self._ask(find_actor(GATEWAY_NAME).report_failing.remote(name, failing))

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """Say which queues, and no others, the stand-in reads no further for now."""
        self._ask(find_actor(GATEWAY_NAME).leave_alone.remote(name, queue_ids))

    def give_up(
        self, name: str, revocation: int, commits: Mapping[int, int], number: int = 0
    ) -> None:
        """Say that revoked queues are given up."""
        self._ask(find_actor(GATEWAY_NAME).give_up.remote(name, revocation, commits, number))

    def leave(self, name: str, commits: Mapping[int, int], number: int = 0) -> None:
        """Leave the group."""
        self._ask(find_actor(GATEWAY_NAME).leave.remote(name, commits, number))
