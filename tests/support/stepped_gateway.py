"""Members on other nodes whose threads take turns, and whose calls to the gateway get lost.

A proxy gives queues up inside its member's poll, and waits there for the member's word. Its turn
is a thread that stands still meanwhile, while a test goes on; time passes by the test's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from rocketray.actors.remote.backlog import Backlog
from rocketray.actors.remote.proxy_member import ProxyMember
from rocketray.actors.remote.remote_calls import JoinRequest
from rocketray.actors.remote.remote_members import RemoteMembers
from rocketray.errors import ShardUnavailableError
from rocketray.testing import Broker, Member

__all__ = ["Calls", "Gateway", "Loss", "SteppedStandIn"]

Loss = Literal["request", "answer"]
_HANG_S = 60


class _Killed(BaseException):
    """The process of the gateway ended."""


class _Backlog(Backlog):
    """Says when the thread of its proxy waits, and waits by the test's clock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        super().__init__()
        self._clock_s = clock_s
        self.lock = self._changed
        self.is_quiet = threading.Event()
        self.is_killed = False

    def wait_until_given_up(self, timeout_s: float) -> bool:
        end_s = self._clock_s() + timeout_s
        with self._changed:
            while self._revocation.queue_ids and not self._is_closed and self._clock_s() < end_s:
                self.is_quiet.set()
                self._changed.wait()
                if self.is_killed:
                    raise _Killed
        return super().wait_until_given_up(0)


class SteppedStandIn(ProxyMember):
    """Its thread lives for one turn."""

    _backlog: _Backlog

    def _start(self) -> None:
        self._backlog = _Backlog(self._clock_s)
        self._is_in_turn = False

    def take_turn(self) -> None:
        """Let the thread do what it can do now."""
        self.settle()
        if not self._is_in_turn and self._failure is None:
            self._is_in_turn = True
            self._backlog.is_quiet.clear()
            threading.Thread(target=self._take_turn, daemon=True).start()
            assert self._backlog.is_quiet.wait(_HANG_S)

    def settle(self) -> None:
        """Wait until the thread stands still, after something changed."""
        with self._backlog.lock:
            if not self._is_in_turn:
                return
            self._backlog.is_quiet.clear()
            self._backlog.lock.notify_all()
        assert self._backlog.is_quiet.wait(_HANG_S)

    def kill(self) -> None:
        """End as a killed process ends."""
        self._backlog.is_killed = True
        self.settle()

    @property
    def member(self) -> Member:
        """Its place in the group."""
        assert isinstance(self._member, Member)
        return self._member

    def _take_turn(self) -> None:
        with suppress(_Killed):
            self.step()
        with self._backlog.lock:
            self._is_in_turn = False
            self._backlog.is_quiet.set()

    def _end(self) -> None:
        self.settle()


class Gateway:
    """The gateway that there is now: it may be killed, and another one comes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.members = RemoteMembers(self._join, self._clock_s)

    def proxies(self) -> list[SteppedStandIn]:
        """All that live."""
        found = list(self.members._proxies.values())
        return [one for one in found if isinstance(one, SteppedStandIn)]

    def take_turns(self) -> None:
        """Let every proxy do what it can do now."""
        for proxy in self.proxies():
            proxy.take_turn()

    def settle(self) -> None:
        """Let what waits see what changed."""
        for proxy in self.proxies():
            proxy.settle()

    def restart(self) -> None:
        """Kill it; the coordinator hears nothing of its members any more."""
        for proxy in self.proxies():
            proxy.kill()
            self._broker.crash(proxy.member)
        self.members = RemoteMembers(self._join, self._clock_s)

    def _join(self, request: JoinRequest) -> Member:
        identity = request.group, request.topic, request.subscription
        return self._broker.consumer(*identity, **request.options)

    def _clock_s(self) -> float:
        return self._broker.clock.steady() / 1000


class Calls:
    """One member's calls: requests are lost, or answers, as the test wants."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.losses: dict[str, list[Loss]] = {}
        """What becomes of the next calls of a name; nothing happens to all others."""
        self.cut_off_calls = 0
        """So many requests are lost, of any name."""

    def heal(self) -> None:
        """Lose nothing any more."""
        self.losses.clear()
        self.cut_off_calls = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            loss = self._loss(name)
            answer = None
            if loss != "request":
                answer = getattr(self._gateway.members, name)(*arguments)
                self._gateway.settle()
            if loss is not None:
                raise ShardUnavailableError("gateway", 0, f"the {loss} was lost by the test")
            return answer

        return call

    def _loss(self, name: str) -> Loss | None:
        if self.cut_off_calls > 0:
            self.cut_off_calls -= 1
            return "request"
        waiting = self.losses.get(name)
        return waiting.pop(0) if waiting else None
