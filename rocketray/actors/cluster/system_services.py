"""System services: the node's periodic work on its system topics, in the shared process.

A service is a plain object with one method, which does the work that is due and returns when to be
called next. It is called earlier when the process gets messages, so it may sleep for long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from rocketray.broker.retries.deliveries import Submit, at_once
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.system_api import DelaysApi, TransactionsApi
from rocketray.runtime.calls.endpoint import ServedObjects
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import remove_half_written
from rocketray.services.delays.delay_service import DelayService
from rocketray.services.system.system_log import RETRY_AFTER_MS, SystemLog
from rocketray.services.transactions.transaction_service import TransactionService

_LOG = logging.getLogger(__name__)
_IDLE_MS = 60_000  # nothing is due; a message that is stored wakes the services
_LOOK_S = 1.0  # services read the clock again: it may have been set


class Service(Protocol):
    """A service: delivery of delayed messages, transaction checks."""

    def step(self, now_ms: int) -> int:
        """Do the work due at *now_ms*; return the time of the next call, in ms since 1970."""


def step_each(services: Iterable[Service], now_ms: int) -> int:
    """Call each service; return the next time. A failed service is called again after 1 s."""
    wakeups = [now_ms + _IDLE_MS]
    for service in services:
        try:
            wakeups.append(service.step(now_ms))
        except Exception:  # noqa: BLE001 - one service does not stop the others
            _LOG.exception("%s failed; trying again", type(service).__name__)
            wakeups.append(now_ms + RETRY_AFTER_MS)
    return min(wakeups)


class SystemServices:
    """Transactions and delayed messages: by steps, or with :meth:`start` in a thread."""

    def __init__(
        self,
        process: ShardProcess,
        node: Callable[[], NodeClient],
        *,
        clock_ms: Callable[[], int],
        submit: Submit = at_once,
    ) -> None:
        """Take the shards of *process*; *node* is called when a service first needs it.

        *submit* runs the services' deliveries, at once or in threads.
        """
        remove_half_written(config_directory(process.data))
        self._clock_ms = clock_ms
        log = SystemLog(process, clock_ms)
        self.transactions = TransactionService(
            log, node, data=process.data, clock_ms=clock_ms, submit=submit, wake=self.wake
        )
        self.schedule = DelayService(process, node, submit)
        self._is_closed = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._keep_stepping, name="services", daemon=True)

    def serve(self, served: ServedObjects) -> None:
        """Answer the calls about transactions and delayed messages."""
        served.serve(TransactionsApi, lambda: self.transactions)
        served.serve(DelaysApi, lambda: self.schedule)

    def step(self, now_ms: int) -> int:
        """See :func:`step_each`."""
        return step_each((self.transactions, self.schedule), now_ms)

    def start(self) -> None:
        """Call the services in a thread from now on, until :meth:`close`."""
        self._thread.start()

    def wake(self) -> None:
        """Call the services soon: messages were stored."""
        self._woken.set()

    def close(self) -> None:
        """Save the progress of the services; call this before the shards are closed."""
        self._is_closed = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.transactions.close()
        self.schedule.close()

    def _keep_stepping(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            wakeup_ms = self.step(self._clock_ms())
            wait_s = (wakeup_ms - self._clock_ms()) / 1000
            if not self._is_closed:
                self._woken.wait(min(max(wait_s, 0), _LOOK_S))
