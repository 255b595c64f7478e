"""The system services of a node, over the shards of the shared process."""

from __future__ import annotations

from collections.abc import Callable

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.api.system_api import DelaysApi, TransactionsApi
from rocketray.actors.calls.endpoint import ServedObjects
from rocketray.actors.delays.delay_service import DelayService
from rocketray.actors.files.paths import config_directory
from rocketray.actors.files.state_files import remove_half_written
from rocketray.actors.retries.deliveries import Submit, at_once
from rocketray.actors.shards.shard_process import ShardProcess
from rocketray.actors.system.services import ServiceThread, step_each
from rocketray.actors.system.system_log import SystemLog
from rocketray.actors.transactions.transaction_service import TransactionService

__all__ = ["SystemServices"]


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
        self._thread: ServiceThread | None = None

    def serve(self, served: ServedObjects) -> None:
        """Answer the calls about transactions and delayed messages."""
        served.serve(TransactionsApi, lambda: self.transactions)
        served.serve(DelaysApi, lambda: self.schedule)

    def step(self, now_ms: int) -> int:
        """See :func:`step_each`."""
        return step_each((self.transactions, self.schedule), now_ms)

    def start(self) -> None:
        """Call the services in a thread from now on, until :meth:`close`."""
        self._thread = ServiceThread(self.step, self._clock_ms)

    def wake(self) -> None:
        """Call the services soon: messages were stored."""
        if self._thread is not None:
            self._thread.wake()

    def close(self) -> None:
        """Save the progress of the services; call this before the shards are closed."""
        if self._thread is not None:
            self._thread.stop()
        self.transactions.close()
        self.schedule.close()
