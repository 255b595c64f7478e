"""The shard host with the node's services: its actor adds threads, the testing kit steps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rocketray.actors.delays.schedule_host import ScheduleHost
from rocketray.actors.files.paths import config_directory
from rocketray.actors.files.state_files import remove_half_written
from rocketray.actors.retries.deliveries import Submit, at_once
from rocketray.actors.system.host_services import Services
from rocketray.actors.system.hosted_log import HostedLog
from rocketray.actors.system.node_link import HostNode
from rocketray.actors.system.shard_host import ShardHost
from rocketray.actors.transactions.transaction_host import TransactionHost

__all__ = ["Hosting"]


class Hosting:
    """All hosted shards, and the node's services over them."""

    def __init__(
        self,
        data: Path,
        sizes: Mapping[str, int],
        node: Callable[[], HostNode],
        *,
        clock_ms: Callable[[], int],
        submit: Submit = at_once,
    ) -> None:
        """Open the shards of the catalog; *node* is called when a service first needs it.

        *submit* runs the services' deliveries, at once or in threads.
        """
        remove_half_written(config_directory(data))
        self.host = ShardHost(data, sizes, clock_ms=clock_ms)
        log = HostedLog(self.host, clock_ms)
        self.transactions = TransactionHost(log, node, data=data, clock_ms=clock_ms, submit=submit)
        self.schedule = ScheduleHost(self.host, node, data, submit)
        self.services = Services([self.transactions, self.schedule])

    def close(self) -> None:
        """Save the progress of the services, flush and release all shards."""
        self.transactions.close()
        self.schedule.close()
        self.host.close()
