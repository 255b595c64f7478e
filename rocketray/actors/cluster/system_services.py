"""System services: the node's periodic work on its system topics, in the shared process."""

from __future__ import annotations

from collections.abc import Callable

from rocketray.broker.retries.deliveries import Submit, at_once
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.system_api import DelaysApi, TransactionsApi
from rocketray.runtime.calls.endpoint import ServedObjects
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import remove_half_written
from rocketray.services.delays.delay_service import DelayService
from rocketray.services.system.stepping import SteppedServices
from rocketray.services.system.system_log import SystemLog
from rocketray.services.transactions.transaction_service import TransactionService


class SystemServices(SteppedServices):
    """Transactions and delayed messages; they are closed before the shards are."""

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
        super().__init__("services", clock_ms)
        remove_half_written(config_directory(process.data))
        log = SystemLog(process, clock_ms)
        self.transactions = TransactionService(
            log, node, data=process.data, clock_ms=clock_ms, submit=submit, wake=self.wake
        )
        self.schedule = DelayService(process, node, submit)
        self.stepped = (self.transactions, self.schedule)

    def serve(self, served: ServedObjects) -> None:
        """Answer the calls about transactions and delayed messages."""
        served.serve(TransactionsApi, lambda: self.transactions)
        served.serve(DelaysApi, lambda: self.schedule)
