"""A node in this process that answers commands on its socket, as the process of a node does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from rocketray.actors.client.node_process_api import NodeProcessApi
from rocketray.actors.cluster.local_service import Loaded, LocalService
from rocketray.broker.retries.dead_letter_api import DeadLettersApi
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.runtime_lock import RuntimeLock
from rocketray.services.admin.dead_letter_service import DeadLetterService
from rocketray.services.explaining.explanation import Explanation

from .local_node import LocalNode


@contextmanager
def serving(
    node: LocalNode, later: Mapping[str, Loaded] = MappingProxyType({})
) -> Iterator[LocalService]:
    """Answer commands on the node's directory for the time of the block."""
    lock = RuntimeLock(node.data)
    hello = {"data": str(node.data), "cluster": node.cluster}
    here: dict[type, object] = {
        NodeProcessApi: _Process(node),
        DeadLettersApi: DeadLetterService(node),
    }
    service = LocalService(node.data, node.calls, here, hello, later)
    try:
        yield service
    finally:
        service.close()
        lock.close()


class _Process:
    """The node's process: of a node in this one."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node

    def has_files(self, disk: str) -> bool:
        return disk == ""

    def explain(self, message: str, group: str | None, topic: str | None) -> Explanation:
        return self.node.explain(message, group, topic)

    def doubts(self, topics: Sequence[str], subscription: Subscription) -> list[str]:
        return [f"{topic}: {subscription}" for topic in topics]
