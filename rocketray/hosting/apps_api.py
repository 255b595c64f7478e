"""The calls about apps that are up, as commands make them: to the node's process, or in their own.

The process that runs a node answers over its socket (actors/cluster/local_service.py), so a command
need not join Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rocketray.runtime.calls.endpoint import Endpoint

from .host_status import Host


@dataclass(frozen=True, slots=True)
class TakenDown:
    """How many hosts were ended, and a sentence for each not drained, or still there."""

    ended: int
    not_drained: tuple[str, ...]


class AppsApi(Protocol):
    """The calls about apps; see ``AppsService``."""

    def hosts(self, app: str | None) -> list[Host]:
        """Return the hosts of all apps of the cluster, or those of one, by app and number.

        One that does not answer within 5 s is ``silent``, and its status is None.

        Raises:
            ConfigError: *app* is not up. ActorError: Ray does not say which hosts there are.
        """

    def take_down(self, app: str) -> TakenDown:
        """Drain the hosts of *app*, and end them; return when their processes have ended.

        Agents are given a minute to drain; in an app with sinks all hosts have five minutes for
        each sink, since one that still starts is stopped when Spark has started it.

        Raises:
            ConfigError: *app* is not up. ActorError: Ray does not say which hosts there are.
        """


APPS = Endpoint("node", AppsApi)
