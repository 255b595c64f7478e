"""The filter actor: the process of a disk's filter engine, and of its agent."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rocketray.actors.client.ray_transport import RayTransport, begin
from rocketray.broker.disks.copy_rounds import FileSums, Known
from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.disks.disks_api import DiskApi, agent_of
from rocketray.broker.filtering.engine import FilterEngine
from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.kernels import compile_once
from rocketray.runtime.calls.endpoint import ServedObjects, client_of
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import ray, zone_of_machine

from .actor_log import show_log

_LOG = logging.getLogger(__name__)
# Of calls: members that attach, questions about lags and predicates, and the disk's agent. The
# filter itself has a thread beside them.
FILTER_THREADS = 4
_FETCHES_AT_ONCE = 4  # some blocks travel while the source's disk reads others
_FETCH_S = 60.0  # as CALL_TIMEOUT_S, for each call
# A computing predicate would otherwise delay all other filters, by 5 ms at each of their kernels.
_SWITCH_INTERVAL_S = 0.0005


class FilterActor(ServedObjects):
    """The Ray shell of :class:`FilterEngine`; a thread that fails ends the process."""

    def __init__(self, home: Home, rules: FilterRules) -> None:
        super().__init__()
        show_log(home)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        compile_once()
        self._home = home
        data = home.directory()
        self._engine = FilterEngine(data, rules)
        self.serve(FilterApi, lambda: self._engine)
        agent = DiskAgent(data, zone_of_machine(), partial(_FetchedQueue, home))
        self.serve(DiskApi, lambda: agent)
        self._engine.attach_all()
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="filter", daemon=True).start()

    def home(self) -> Home:
        return self._home

    def stop(self) -> None:
        self._stop.set()
        self._engine.wake()

    def _run(self) -> None:
        try:
            self._engine.run(self._stop)
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("the filter actor ends; Ray starts a new one")
            os._exit(1)


class _FetchedQueue:
    """A queue on another disk: the :class:`QueueSource` over Ray, with some calls in flight."""

    def __init__(self, home: Home, disk: str, topic: str, queue_id: int) -> None:
        self._cluster = home.cluster
        self._agent = agent_of(disk)
        self._place = topic, queue_id
        self._calls = client_of(RayTransport(home.directory(), home.cluster), self._agent)

    def sums(self, known: Known) -> dict[str, FileSums]:
        return self._calls.sums_of(*self._place, known)

    def blocks(self, wanted: Sequence[tuple[str, list[int]]]) -> Iterator[bytes]:
        asked: deque[Any] = deque()
        for name, numbers in wanted:
            if len(asked) >= _FETCHES_AT_ONCE:
                yield ray.get(asked.popleft(), timeout=_FETCH_S)
            asked.append(
                begin(self._cluster, self._agent, DiskApi.read_blocks, *self._place, name, numbers)
            )
        for reference in asked:
            yield ray.get(reference, timeout=_FETCH_S)
