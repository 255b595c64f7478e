"""The group members that run on other nodes, with their proxies on the node of the shards.

A proxy is an ordinary group member, which packs its messages into frames and holds them until the
remote member fetches them. The member waits in a long poll, so it has a message one call after the
match, and an idle member costs four calls a minute.

Invariants
  1. A proxy holds four frames of about ``FRAME_BYTES``, or of one message, and the last reply.
  2. A queue is released after its member confirmed that, or did not for ``REVOKE_TIMEOUT_S``;
     what it sends later about that queue is ignored. Its lease ends before that time is over, and a
     member that let it pass gets no new lease until it joined again.
  3. A member that is silent for ``SILENCE_S``, which is longer than a lease, loses its proxy: other
     members get its queues. Calls during that time are not answered with a lease.
  4. A member chooses its proxy's name, and repeats the name until it is answered. So when a reply
     is lost, or Ray makes the call twice, no second proxy holds queues unused.
  5. There are at most ``MEMBERS_MAX`` proxies, each with one waiting poll at a time, and a poll
     waits for at most ``POLL_MAX_S``: calls that return at once never wait for a thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.groups.failing import FailingMessage
from rocketray.errors import StreamError, UnknownMemberError

from .proxy_member import ProxyMember
from .remote_calls import POLL_MAX_S, CommitReply, JoinRequest, PollReply

__all__ = ["MEMBERS_MAX", "SILENCE_S", "RemoteMembers"]

_LOG = logging.getLogger(__name__)
MEMBERS_MAX = 200
SILENCE_S = 20.0


class RemoteMembers:
    """All proxies of a node; any thread may call."""

    def __init__(
        self, join: Callable[[JoinRequest], GroupConsumer], clock_s: Callable[[], float]
    ) -> None:
        """Create it empty; *join* creates a member on this node, *clock_s* is monotonic."""
        self._join = join
        self._clock_s = clock_s
        self._lock = threading.Condition()
        self._proxies: dict[str, ProxyMember] = {}
        self._heard_s: dict[str, float] = {}
        self._joining: set[str] = set()

    def join(self, name: str, request: JoinRequest) -> None:
        """Create a proxy of that name unless it exists.

        Raises:
            StreamError: too many members read here already, or what joining the group raises.
        """
        with self._lock:
            self._lock.wait_for(lambda: name not in self._joining)
            if name in self._proxies:
                self._heard_s[name] = self._clock_s()
                return
            count = len(self._proxies) + len(self._joining)
            if count >= MEMBERS_MAX:
                raise StreamError(
                    f"{count} members on other nodes read through this node already, which is the "
                    "limit: stop some of them, or run consumers on the node of the shards"
                )
            self._joining.add(name)
        try:
            proxy = ProxyMember(self._join(request), self._clock_s)
            with self._lock:
                self._proxies[name] = proxy
                self._heard_s[name] = self._clock_s()
        finally:
            with self._lock:
                self._joining.discard(name)
                self._lock.notify_all()

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        """Return batches for a member; wait up to *timeout_s*, and at most ``POLL_MAX_S``.

        *received* is the number of the last reply that the member got, 0 for none: a lost reply is
        sent again.

        Raises:
            UnknownMemberError: it was silent for too long, or the node restarted.
            ShardUnavailableError: another poll of the member waits.
            StreamError: the group refuses the member, or its filter failed.
        """
        reply = self._find(name).poll(max(0.0, min(POLL_MAX_S, timeout_s)), received)
        with self._lock:
            if name in self._proxies:
                self._heard_s[name] = self._clock_s()
        return reply

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Take next queue offsets by queue, as a sign of life, too; raises as :meth:`poll`.

        *number* grows from call to call of a member, here and in the calls below: a call after one
        with a higher number is ignored. 0 is never ignored. Return the member's lease in
        milliseconds, and the queues that it has to release.
        """
        return self._find(name).commit(commits, number)

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Take its sums of messages sent back and dead-lettered; raises as :meth:`poll`."""
        self._find(name).count_returns(sent_back, dead_lettered)

    def report_failing(self, name: str, failing: Mapping[int, FailingMessage]) -> None:
        """Set the messages at which the member holds queues; raises as :meth:`poll`."""
        self._find(name).report_failing(failing)

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """Pause just these queues of the member; raises as :meth:`poll`."""
        self._find(name).leave_alone(queue_ids)

    def give_up(
        self, name: str, revocation: int, commits: Mapping[int, int], number: int = 0
    ) -> None:
        """Note that the member released the queues of that revocation; raises as :meth:`poll`."""
        proxy = self._find(name)
        proxy.commit(commits, number)
        proxy.give_up(revocation)

    def leave(self, name: str, commits: Mapping[int, int], number: int = 0) -> None:
        """Take the last commits, and leave the group."""
        with self._lock:
            proxy = self._proxies.pop(name, None)
            self._heard_s.pop(name, None)
        if proxy is not None:
            proxy.commit(commits, number)
            proxy.close()

    def sweep(self) -> None:
        """Remove the silent members (invariant 3)."""
        with self._lock:
            now_s = self._clock_s()
            silent = [name for name, at_s in self._heard_s.items() if now_s - at_s > SILENCE_S]
            swept = {name: self._proxies.pop(name) for name in silent}
            for name in silent:
                del self._heard_s[name]
        for name, proxy in swept.items():
            _LOG.warning("remote member %s sent no heartbeat; its queues are reassigned", name)
            _end(name, proxy)

    def close(self) -> None:
        """Leave all groups."""
        with self._lock:
            proxies, self._proxies, self._heard_s = self._proxies, {}, {}
        for name, proxy in proxies.items():
            _end(name, proxy)

    def _find(self, name: str) -> ProxyMember:
        with self._lock:
            proxy = self._proxies.get(name)
            if proxy is not None:
                self._heard_s[name] = self._clock_s()
                return proxy
        raise UnknownMemberError(
            f"the node knows no remote member {name}: it sent no heartbeat for {SILENCE_S:.0f} s, "
            "or the node was restarted; join again"
        )


def _end(name: str, proxy: ProxyMember) -> None:
    """Have a proxy leave; if the coordinator cannot be told, the session times out."""
    try:
        proxy.close()
    except (StreamError, OSError) as error:
        _LOG.warning("remote member %s did not leave its group cleanly: %s", name, error)
