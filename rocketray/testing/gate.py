"""The way of a producer to one shard in a test: a call, which fails as the test asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rocketray.actors.ipc.ring import Ack, AppendStatus
from rocketray.errors import ShardUnavailableError

__all__ = ["Gate"]

ResultT = TypeVar("ResultT")
_RETRY_AFTER_MS = 1  # of real time, so that no test waits long


class Gate:
    """What producers call; what they send is stored when the call returns."""

    def __init__(self, name: str, append: Callable[[bytes, int, int], Ack]) -> None:
        """*append* stores a batch: payload, durability and attempt."""
        self.is_down = False
        """It does not answer; see :meth:`Broker.shard_down`."""
        self.failing = 0
        """How many of the next batches it refuses, as after an error of the disk."""
        self.losing_acks = 0
        """How many of the next batches it stores without saying so."""
        self._name = name
        self._append = append

    def attach(self, path: str) -> None:
        """Nobody shares memory with it."""
        raise NotImplementedError(path)

    def append(self, payload: bytes, durability: int, *, attempt: int = 0) -> Ack:
        """Store a packed batch."""
        if self.is_down:
            raise self._unavailable("it is down, as the test asked")
        if self.failing:
            self.failing -= 1
            return Ack(AppendStatus.FAILED)
        return self._answer(partial(self._append, payload, durability, attempt))

    def call(self, run: Callable[[], ResultT]) -> ResultT:
        """Do what the shard's process is asked to do beside the batches that it stores."""
        if self.is_down:
            raise self._unavailable("it is down, as the test asked")
        if self.failing:
            self.failing -= 1
            raise self._unavailable("it could not store the batch, as the test asked")
        return self._answer(run)

    def _answer(self, run: Callable[[], ResultT]) -> ResultT:
        result = run()
        if self.losing_acks:
            self.losing_acks -= 1
            raise self._unavailable("its answer was lost, as the test asked")
        return result

    def _unavailable(self, reason: str) -> ShardUnavailableError:
        return ShardUnavailableError(self._name, _RETRY_AFTER_MS, reason)
