"""A node that is stepped, with the fetch service of its disk: Spark finds it and writes into it.

It stands in for the gateway of a node, without Ray. Faults are calls that fail before they are
done, or whose answers are lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rocketray.broker.fetching.flight_service import FlightService
from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.errors import StreamError
from rocketray.runtime.files.fragment_file import BatchName, Fragment
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.files.node_description import write_description
from rocketray.runtime.machine import here
from rocketray.services.staging.staging_api import StagedBatch, StagedOverview, StagingVerdict
from rocketray.services.staging.staging_calls import staging_calls
from rocketray.testing import Broker

_ResultT = TypeVar("_ResultT")


class SteppedStaging:
    """The staged batches of a stepped node: a call has all its consequences when it returns."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.failing = 0
        """How many of the next decisions fail before they are made."""
        self.losing = 0
        """How many of the next answers to decisions are lost."""
        self.calls: Counter[str] = Counter()
        self.batches: list[StagedBatch] = []
        """The batches whose decision was asked for."""

    def decide(self, wanted: StagedBatch) -> StagingVerdict:
        self.batches.append(wanted)
        if self.failing:
            self.failing -= 1
            raise StreamError("it fails before the decision, as the test asked")
        verdict = self._do("decide", lambda: self._broker.node.staging.decide(wanted))
        if self.losing:
            self.losing -= 1
            raise StreamError("the answer is lost, as the test asked")
        return verdict

    def publish(self, name: BatchName, fragments: Sequence[Fragment]) -> None:
        self._do("publish", lambda: self._broker.node.staging.publish(name, fragments))

    def is_applied(self, batch: BatchName) -> bool:
        return self._do("is_applied", lambda: self._broker.node.staging.is_applied(batch))

    def drop(self, batch: BatchName, names: Sequence[str]) -> None:
        self._do("drop", lambda: self._broker.node.staging.drop(batch, names))

    def overview(self, most: int) -> StagedOverview:
        return self._do("overview", lambda: self._broker.node.staging.overview(most))

    def _do(self, name: str, run: Callable[[], _ResultT]) -> _ResultT:
        with self._broker._stepped.lock:
            result = run()
            self._broker._stepped.stored()
        self.calls[name] += 1
        return result


@contextmanager
def served(broker: Broker, *, has_tls: bool = False) -> Iterator[tuple[SteppedStaging, DiskPlace]]:
    """Serve the staged batches of a stepped node, which programs of this machine find."""
    uuid = settle_identity(broker.data)
    description = {"data": str(broker.data), "pid": os.getpid(), **here()}
    write_description(broker.data, description)
    staging = SteppedStaging(broker)
    home = Home(str(broker.data), uuid, str(description["machine"]))
    calls = staging_calls(broker.data, staging, broker.topics)
    service = FlightService(home, "127.0.0.1", calls, has_tls=has_tls)
    try:
        yield staging, service.open()
    finally:
        service.close()
