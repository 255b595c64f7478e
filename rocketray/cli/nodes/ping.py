"""``rocketray ping``: whether the node on a data directory answers, for probes of a supervisor."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketray.actors.client.local_transport import open_local
from rocketray.cli.arguments.directories import refuse_cluster
from rocketray.cli.arguments.options import CommonOptions
from rocketray.errors import ActorError, NodeNotRunningError
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.machine import whereabouts


def ping(
    *,
    if_running: Annotated[
        bool,
        typer.Option(
            "--if-running",
            help="Succeed also if no node runs, or one still starts: for a liveness probe.",
        ),
    ] = False,
    common: CommonOptions,
) -> None:
    """Check that a node answers: exit code 0, else 1.

    Only the node's own process is asked, over its socket: a joined disk answers while the machine
    of the coordinator is down. A node that starts or recovers does not answer yet, however long it
    takes, and neither does one that was killed, though its node.json is still there.

    A readiness probe is "rocketray ping". A liveness probe is "rocketray ping --if-running": it
    fails only if the process of the node is there and does not answer.

    Examples:
        rocketray ping
        rocketray ping --if-running --data /srv/stream
    """
    data = common.data
    refuse_cluster("ping", data)
    transport = open_local(data.resolve())
    if transport is None:
        node = read_description(data)
        if node is not None and whereabouts(node) == "here":
            raise ActorError(f"the node on {data} does not answer; its process is {node['pid']}")
        if not if_running:
            raise NodeNotRunningError(f"no node runs on {data}, or it has not started yet")
    else:
        transport.close()
    answers = transport is not None
    text = f"the node on {data} answers" if answers else f"no node runs on {data}"
    common.emit({"data": str(data.resolve()), "answers": answers}, text)
