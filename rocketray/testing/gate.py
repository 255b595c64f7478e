"""The link from a producer to one shard in a test: a call, with the faults that the test set."""

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
    """The calls of producers; a batch is stored when its call returns."""

    def __init__(self, name: str, append: Callable[[bytes, int, int], Ack]) -> None:
        """Take *append*, which stores a batch: payload, durability and attempt."""
        self.is_down = False
        """Whether the shard is down; see :meth:`Broker.shard_down`."""
        self.failing = 0
        """Number of following batches to refuse, as after a disk error."""
        self.losing_acks = 0
        """Number of following batches to store without an acknowledgement."""
        self._name = name
        self._append = append

    def attach(self, path: str) -> None:
        """Raise: no process shares memory with it."""
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
        """Run a call of the shard's process other than storing a batch, with the faults set."""
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
            raise self._unavailable("its reply was lost, as the test asked")
        return result

    def _unavailable(self, reason: str) -> ShardUnavailableError:
        return ShardUnavailableError(self._name, _RETRY_AFTER_MS, reason)
