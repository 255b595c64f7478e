"""The service of the process that runs a node, for commands on its machine.

It does for them what they would load slow modules for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rocketray.filters.subscription import Subscription
from rocketray.runtime.calls.endpoint import Endpoint
from rocketray.services.explaining.explanation import Explanation


class NodeProcessApi(Protocol):
    """The calls of the node's process; see ``NodeProcess``."""

    def has_files(self, disk: str) -> bool:
        """Return whether the files of a disk are on this machine."""

    def explain(self, message: str, group: str | None, topic: str | None) -> Explanation:
        """See :meth:`Connection.explain`."""

    def doubts(self, topics: Sequence[str], subscription: Subscription) -> list[str]:
        """Return doubts about a filter of *topics* (filter_advice.py); none without their files."""


NODE_PROCESS = Endpoint("node", NodeProcessApi)
