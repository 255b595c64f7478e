"""The hosts of apps, for commands: found in Ray, which is joined only if there may be some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocketray.actors.groups.member_options import client_ids_of
from rocketray.errors import ConfigError

from .node import connect

if TYPE_CHECKING:
    from rocketray.actors.client.connection import Connection
    from rocketray.actors.client.local_client import LocalClient
    from rocketray.topology.hosting.hosting import Host

__all__ = ["host_of_member", "hosts_of", "hosts_there"]


def hosts_there(node: LocalClient | Connection, app: str | None, data: Path) -> list[Host]:
    """Return all hosts, or those of *app*; without any, Ray and Faust are not imported."""
    from rocketray.actors.client.local_client import LocalClient  # noqa: PLC0415 - not for help

    if app is None and isinstance(node, LocalClient) and not node.has_apps():
        return []
    from rocketray.topology.hosting.hosting import find_hosts  # noqa: PLC0415 - Ray, Faust

    with connect(data) as connection:
        cluster = connection.cluster
        return find_hosts(cluster) if app is None else hosts_of(cluster, app)


def hosts_of(cluster: str, app: str) -> list[Host]:
    """Return the hosts of *app*; raise :class:`ConfigError` if it is not up."""
    from rocketray.topology.hosting.hosting import find_hosts  # noqa: PLC0415 - Ray, Faust

    hosts = find_hosts(cluster, app)
    if not hosts:
        names = sorted({host.app for host in find_hosts(cluster)})
        known = f"these are: {', '.join(names)}" if names else "no app is"
        raise ConfigError(f"app {app!r} is not up; {known}; start it with: rocketray up MODULE:APP")
    return hosts


def host_of_member(client: str, hosts: Sequence[Host]) -> Host | None:
    """Return the host of a member, whose id begins with its machine and process."""
    for host in hosts:
        status = host.status
        if status is not None and client.startswith(client_ids_of(status.machine, status.pid)):
            return host
    return None
