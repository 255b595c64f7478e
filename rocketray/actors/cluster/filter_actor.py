"""The filter actor: the process of a disk's filter engine, and of its agent."""

from __future__ import annotations

import logging
import os
import sys
import threading

from rocketray.actors.calls.endpoint import ServedObjects
from rocketray.actors.disks.disk_agent import DiskAgent
from rocketray.actors.disks.disks_api import DiskApi
from rocketray.actors.files.home import Home
from rocketray.actors.filtering.engine import FilterEngine
from rocketray.actors.filtering.filter_api import FilterApi
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.ray_process.ray_runtime import zone_of_machine
from rocketray.kernels import warm

__all__ = ["FILTER_THREADS", "FilterActor"]

_LOG = logging.getLogger(__name__)
FILTER_THREADS = 4
# A computing predicate would otherwise delay all other filters, by 5 ms at each of their kernels.
_SWITCH_INTERVAL_S = 0.0005


class FilterActor(ServedObjects):
    """The Ray shell of :class:`FilterEngine`; a thread that fails ends the process."""

    def __init__(self, home: Home, rules: FilterRules) -> None:
        super().__init__()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        warm()
        self._home = home
        data = home.directory()
        self._engine = FilterEngine(data, rules)
        self.serve(FilterApi, lambda: self._engine)
        agent = DiskAgent(data, zone_of_machine())
        self.serve(DiskApi, lambda: agent)
        self._engine.attach_all()
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="filter", daemon=True).start()

    def home(self) -> Home:
        """Return the home of the actor's disk."""
        return self._home

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._engine.wake()

    def _run(self) -> None:
        try:
            self._engine.run(self._stop)
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("the filter actor ends; Ray starts a new one")
            os._exit(1)
