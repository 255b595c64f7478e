"""The apps that are up, for commands: asked over the node's own socket, or in Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketray.groups.member_options import client_ids_of

if TYPE_CHECKING:
    from rocketray.hosting.apps_api import AppsApi
    from rocketray.hosting.host_status import Host
    from rocketray.messaging.api.node_client import NodeClient


def apps_of(node: NodeClient) -> AppsApi:
    """Return the calls about the apps of *node*; Ray is used only if the client has joined it."""
    from rocketray.actors.client.connected_client import LocalClient
    from rocketray.hosting.apps_api import APPS
    from rocketray.runtime.calls.endpoint import client_of

    if isinstance(node, LocalClient):
        return client_of(node.transport, APPS)
    from rocketray.hosting.apps_service import AppsService  # Ray

    return AppsService(node.cluster)


def host_of_member(client: str, hosts: Sequence[Host]) -> Host | None:
    """Return the host of a member, whose id begins with its machine and process."""
    for host in hosts:
        status = host.status
        if status is not None and client.startswith(client_ids_of(status.machine, status.pid)):
            return host
    return None
