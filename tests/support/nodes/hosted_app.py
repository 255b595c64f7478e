"""The app of support/programs/joined_apps.py, up on two machines apart, and the processes of its hosts."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

from support.harness.patience import wait_until
from support.nodes.disk_cluster import NAME, Cluster
from support.programs.joined_apps import APP, FILES

_IN_DIRECTORY = 'cd "$0" && exec "$@"'


def start_app(cluster: Cluster) -> dict[int, int]:
    """Bring it up from the first machine, and return the process of the one host there."""
    directory = cluster.directory / "app"
    directory.mkdir()
    for name, text in FILES.items():
        Path(directory, name).write_text(text)
    address = "--ray-address", cluster.machines.address
    command = "--cluster", NAME, *address, "up", f"{APP}:app", "--consumers", "2", "--detach"
    cluster.run(*command, prefix=("sh", "-c", _IN_DIRECTORY, str(directory)))
    found = processes_here(cluster)
    assert len(found) == 1, "each machine has one"
    return found


def processes_here(cluster: Cluster) -> dict[int, int]:
    """The process of each host on the first machine, when all run."""

    def running() -> dict[int, int]:
        done = cluster.ask("status", APP, "--json")
        hosts = [line for line in done.lines() if "host" in line] if done.code == 0 else []
        if [host["state"] for host in hosts] != ["running", "running"]:
            return {}
        here = socket.gethostname()
        return {host["host"]: host["pid"] for host in hosts if host["machine"] == here}

    return wait_until(running, partial(_said, cluster), within_s=120)


def _said(cluster: Cluster) -> str:
    return "\n".join((cluster.ask("status").out, *map(cluster.said, cluster.nodes)))
