"""The calls about apps that are up, answered by a process that has joined Ray."""

from __future__ import annotations

from rocketray.actors.client.client_ray import CLIENT_RAY
from rocketray.errors import ActorError, ConfigError
from rocketray.runtime.ray_process.ray_runtime import RayError

from .apps_api import AppsApi, TakenDown
from .host_actors import find_hosts, take_down
from .host_status import Host


class AppsService:
    """The object behind ``AppsApi``; any thread may call."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def hosts(self, app: str | None) -> list[Host]:
        hosts = self._found(app)
        if hosts or app is None:
            return hosts
        names = sorted({host.app for host in self._found(None)})
        known = f"these are: {', '.join(names)}" if names else "no app is"
        raise ConfigError(f"app {app!r} is not up; {known}; start it with: rocketray up MODULE:APP")

    def take_down(self, app: str) -> TakenDown:
        hosts = self.hosts(app)
        return TakenDown(len(hosts), tuple(take_down(hosts)))

    def _found(self, app: str | None) -> list[Host]:
        CLIENT_RAY.check()
        if (said := CLIENT_RAY.gcs_away()) is not None:  # Ray would wait for it
            raise ActorError(f"the hosts of apps are unknown: {said}")
        try:
            return find_hosts(self._cluster, app)
        except RayError as error:
            raise ActorError(
                f"the hosts of apps are unknown: Ray does not answer: {error}"
            ) from None


def served_on(cluster: str) -> tuple[type, object]:
    """Return the interface and its object, for the process of a node of *cluster*."""
    return AppsApi, AppsService(cluster)
