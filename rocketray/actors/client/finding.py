"""Finding the node of a directory on this machine, by DATA/node.json, which it keeps."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketray.base.cluster import CLUSTER_VARIABLE
from rocketray.base.environment import process_environ
from rocketray.base.file_form import UnknownVersionError
from rocketray.errors import (
    ConfigError,
    NodeElsewhereError,
    NodeNotRunningError,
    StoreError,
)
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.files.node_lock import node_holder
from rocketray.runtime.files.paths import node_file
from rocketray.runtime.machine import whereabouts


def find_node(directory: Path) -> dict[str, Any]:
    """Return the description of the node that runs on *directory*, on this machine.

    Raises:
        NodeNotRunningError: no node runs there. NodeElsewhereError: it runs on another machine.
        ConfigError: *directory* is a file.
    """
    if directory.is_file():
        raise ConfigError(f"the data directory {directory} is a file; name a node's directory")
    node = _read_description(directory)
    where = "gone" if node is None else whereabouts(node)
    if node is not None and where == "here":
        return node
    machine = _machine_elsewhere(directory, node if where == "elsewhere" else None)
    start = f"rocketray start --data {directory}"
    if machine is not None:
        raise NodeElsewhereError(
            f"the node runs on {machine}, and this is {socket.gethostname()}: use it by the name of "
            f"its cluster ({CLUSTER_VARIABLE}, or --cluster), or if no node runs there any more, "
            f"start one here with: {start}"
        )
    said = f"no node runs on {directory}; start one with: {start}"
    address = process_environ().get("RAY_ADDRESS")
    if node is None and address:
        said = (
            f"{said}; if it runs on another machine of the Ray at {address}, use it by the name of "
            f"its cluster ({CLUSTER_VARIABLE}, or --cluster)"
        )
    raise NodeNotRunningError(said)


def _machine_elsewhere(directory: Path, node: Mapping[str, Any] | None) -> str | None:
    """Return the node's other machine: by its description, or by the Ray of this process."""
    if node is not None:
        return str(node["machine"])
    if "ray" not in sys.modules:  # it takes a second to load, and knows nothing yet
        return None
    from .found_cluster import machine_of  # noqa: PLC0415  # imports Ray

    return machine_of(directory)


def _read_description(directory: Path) -> dict[str, Any] | None:
    """Return the content of node.json; None if there is no such file."""
    try:
        return read_description(directory)
    except StoreError as error:
        runs = node_holder(directory)
        if runs is None:
            raise NodeNotRunningError(
                f"no node runs on {directory}, and the description that the last node left is "
                f"damaged, or of another release ({error}); start one with: rocketray start --data "
                f"{directory}"
            ) from None
        if isinstance(error, UnknownVersionError):
            raise
        raise NodeNotRunningError(
            f"the node on {directory} ({runs}) runs, but cannot be found because "
            f"{node_file(directory)} is damaged; end it with: kill {runs.removeprefix('pid ')}, "
            f"and start it again with: rocketray start --data {directory}"
        ) from None
