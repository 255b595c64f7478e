"""A WSGI program for gunicorn, with the hook that ``how-to/workers.md`` names for its producer.

The module makes a producer of its own, as a program does that was not written for workers: with
``--preload`` the workers inherit it. It is its own configuration, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import rocketray as rr
from rocketray.errors import ForkedError

preload_app = True
workers = 2


OF_MASTER = rr.Producer()
OF_MASTER.send("WebOrders", b"of the master")
OF_WORKER: rr.Producer


def post_fork(_server: Any, _worker: Any) -> None:
    """Make the producer of a worker."""
    global OF_WORKER  # noqa: PLW0603  # of this process
    OF_WORKER = rr.Producer()


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Store the path of the request; ``/inherited`` by the producer of the master."""
    path = environ["PATH_INFO"]
    try:
        producer = OF_MASTER if path == "/inherited" else OF_WORKER
        stored = producer.send("WebOrders", path.encode())
    except ForkedError as error:
        start("503 Service Unavailable", [])
        return [str(error).encode()]
    start("200 OK", [])
    return [f"{os.getpid()} {stored.message_id}".encode()]
