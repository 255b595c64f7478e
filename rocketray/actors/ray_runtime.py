"""Ray as rocketray runs it: on loopback unless a cluster is named, silent, and never joined by chance.

Modules of this package take ``ray`` from here, because what Ray listens on is decided when it is
imported: without RAY_ADDRESS all its servers are put on 127.0.0.1, which Ray does by itself only
on Windows and macOS.
"""

from __future__ import annotations

import logging
import os

if "RAY_ADDRESS" not in os.environ:
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

__all__ = [
    "NAMESPACE",
    "GetTimeoutError",
    "RayActorError",
    "RayTaskError",
    "join_ray",
    "ray",
    "start_ray",
]

NAMESPACE = "rocketray"


def join_ray(address: str) -> None:
    """Join the Ray at *address* as a driver."""
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)


def start_ray(num_cpus: int | None) -> None:
    """Start a Ray of this process's own; it ends with the process."""
    ray.init(
        address="local",  # without it Ray joins any cluster that its session directory names
        namespace=NAMESPACE,
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
