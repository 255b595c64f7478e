"""A node on a small disk that fills up: prints what it says, as one object.

Its argument is the data directory, with nothing on the disk but what is stored here.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.errors import StreamError
from rocketray.runtime.files.node_lock import lock_node

_PIECE = bytes(1024)


def main(data: Path) -> None:
    """Start, send, make a topic and stop where there is no room for it."""
    ballast = data / "ballast"
    _fill(ballast)
    said = {"start": _said(Node, data)}
    ballast.unlink()
    node = Node(data, NodeOptions(num_cpus=1))
    connection = node.connection()
    connection.topics.ensure("Trade", 1)
    with connection.producer() as producer:
        said["send"] = _said(producer.send, "Trade", b"more")
    _fill(ballast)
    said["create"] = _said(connection.topics.ensure, "Other", 1)
    topics = list(connection.topics.all())
    said["stop"] = _said(node.stop)
    ballast.unlink()
    os.close(lock_node(data))  # it is given back
    sys.stdout.write(json.dumps({"said": said, "topics": topics}) + "\n")


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(_PIECE)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017  # this is no test function


def _said(action: Callable[..., Any], *arguments: Any) -> str:
    try:
        action(*arguments)
    except StreamError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


main(Path(sys.argv[1]))
