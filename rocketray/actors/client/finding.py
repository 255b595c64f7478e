"""Finding the node of a data directory, by DATA/node.json, which the running node keeps."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketray.actors.calls.endpoint import COORDINATOR_NAME
from rocketray.actors.files.home import Home
from rocketray.actors.files.node_lock import node_holder
from rocketray.actors.files.paths import node_file
from rocketray.actors.files.state_files import read_json
from rocketray.actors.ray_process.ray_runtime import RayError, ray
from rocketray.actors.runtime.machine import whereabouts
from rocketray.environment import process_environ
from rocketray.errors import (
    NodeElsewhereError,
    NodeNotRunningError,
    ShardUnavailableError,
    StoreError,
)

from .actor_names import find_actor

__all__ = ["find_node"]

_LOOK_S = 5.0
_NOT_OFFERED = "commands, producers and group members on other machines are not supported yet"


def find_node(directory: Path) -> dict[str, Any]:
    """Return the description of the node that runs on *directory*, on this machine.

    Raises:
        NodeNotRunningError: no node runs there. NodeElsewhereError: it runs on another machine.
    """
    node = _read_description(directory)
    where = "gone" if node is None else whereabouts(node)
    if node is not None and where == "here":
        return node
    machine = _machine_elsewhere(node if where == "elsewhere" else None)
    start = f"rocketray start --data {directory}"
    if machine is not None:
        raise NodeElsewhereError(
            f"the node runs on {machine}, and this is {socket.gethostname()}: {_NOT_OFFERED}; run "
            f"this on {machine}, or if no node runs there any more, start one here with: {start}"
        )
    said = f"no node runs on {directory}; start one with: {start}"
    address = process_environ().get("RAY_ADDRESS")
    if node is None and address:
        said = f"{said}; if it runs on another machine of the Ray at {address}: {_NOT_OFFERED}"
    raise NodeNotRunningError(said)


def _machine_elsewhere(node: Mapping[str, Any] | None) -> str | None:
    """Return the node's other machine: by its description, or by the Ray of this process."""
    if node is not None:
        return str(node["machine"])
    if ray.is_initialized():
        try:
            home: Home = ray.get(find_actor(COORDINATOR_NAME).home.remote(), timeout=_LOOK_S)
        except (ShardUnavailableError, RayError):
            return None
        if home.machine != socket.gethostname():
            return home.machine
    return None


def _read_description(directory: Path) -> dict[str, Any] | None:
    """Return the content of node.json; None if there is no such file."""
    path = node_file(directory)
    try:
        return read_json(path)
    except StoreError as error:
        runs = node_holder(directory)
        if runs is None:
            raise NodeNotRunningError(
                f"no node runs on {directory}, and the description that the last node left is "
                f"damaged ({error}); start one with: rocketray start --data {directory}"
            ) from None
        raise NodeNotRunningError(
            f"the node on {directory} ({runs}) runs, but cannot be found because {path} is "
            f"damaged; end it with: kill {runs.removeprefix('pid ')}, and start it again with: "
            f"rocketray start --data {directory}"
        ) from None
