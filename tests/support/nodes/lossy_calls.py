"""Calls that get lost: the requests or the answers, as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from rocketray.errors import ShardUnavailableError, StreamError

Loss = Literal["request", "answer", "late", "twice"]
"""What is lost, or: the call is carried out when the test says so, or at once and once more."""


class LossyCalls:
    """The calls of one member to an object, which may be another one at each call."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find
        self._late: list[Callable[[], Any]] = []
        self.losses: dict[str, list[Loss]] = {}
        """What becomes of the next calls of a name; nothing happens to all others."""
        self.cut_off_calls = 0
        """So many requests are lost, of any name."""

    def heal(self) -> None:
        """Lose nothing any more."""
        self.losses.clear()
        self._late.clear()
        self.cut_off_calls = 0

    def arrive_late(self) -> None:
        """Carry out the calls that are late; nobody waits for their answers."""
        late, self._late = self._late, []
        for call in late:
            with suppress(StreamError):
                call()

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        loss = self._loss(name)
        if loss in ("request", "late"):
            if loss == "late":
                self._late.append(lambda: getattr(self._find(), name)(*arguments, **options))
            raise ShardUnavailableError("the gateway", f"a {name} was lost by the test", 0)
        answer = getattr(self._find(), name)(*arguments, **options)
        if loss == "twice":
            answer = getattr(self._find(), name)(*arguments, **options)
        if loss == "answer":
            raise ShardUnavailableError(
                "the gateway", f"the answer to a {name} was lost by the test", 0
            )
        return answer

    def _loss(self, name: str) -> Loss | None:
        if self.cut_off_calls > 0:
            self.cut_off_calls -= 1
            return "request"
        waiting = self.losses.get(name)
        return waiting.pop(0) if waiting else None
