"""The start of a node's own Ray: fewer processes, and fewer waits, than ``ray.init`` has.

``ray.init`` has no options for these, so functions of it are replaced while it runs:

- Three Python processes of 43 to 60 MiB are left out. They are the autoscaler, which has nothing to
  scale, the log reader, whose output is not shown, and the dashboard server: with the dashboard
  off, it only reports usage, and detects the cloud that it runs in. Ray also starts if that server
  fails. The agents of the raylet stay: it ends with them.
- Ray asks once a second whether the raylet is registered, and fails after 30 s, within which a
  starved machine may not have started it. Here it is asked every ``_LOOK_S``, for as long as the
  raylet runs, up to ``START_MAX_S``.
- Ray imports what its dashboard needs, in 0.3 s, to learn whether that is installed. Where gRPC is
  missing, as with ``pip install ray``, it is not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import ray

START_MAX_S = 120
"""How long each server of a Ray may take to start."""
_LOOK_S = 0.02  # a question to a GCS on this machine; Ray itself sleeps a second
_GRPC = "grpc"


@contextmanager
def small_and_soon() -> Iterator[None]:
    """Have ``ray.init`` start a Ray without what is not used, and notice soon that it runs."""
    parameters, services = ray._private.parameter, ray._private.services  # noqa: SLF001 - see above
    utils = ray._private.utils  # noqa: SLF001 - the same
    made, started, found = parameters.RayParams, services.start_api_server, services.get_node
    missing, raylet = utils.get_dashboard_dependency_error, services.start_raylet
    raylets: list[subprocess.Popen[bytes]] = []
    parameters.RayParams = partial(made, no_monitor=True, include_log_monitor=False)
    services.start_api_server = lambda *_, **__: (None, None)
    services.start_raylet = partial(_start_noted, raylet, raylets)
    services.get_node = partial(_get_node_soon, found, raylets)
    utils.get_dashboard_dependency_error = partial(_missing_soon, missing)
    try:
        yield
    finally:
        parameters.RayParams, services.start_api_server, services.get_node = made, started, found
        utils.get_dashboard_dependency_error, services.start_raylet = missing, raylet


def _start_noted(
    start: Callable[..., Any], begun: list[subprocess.Popen[bytes]], *words: Any, **options: Any
) -> Any:
    """Call *start*, and note the process that it has started."""
    found = start(*words, **options)
    begun.append(found.process)
    return found


def _get_node_soon(
    get_node: Callable[[str, str], Any],
    raylets: Sequence[subprocess.Popen[bytes]],
    address: str,
    node: str,
) -> Any:
    """Call *get_node* as soon as the node of that id is registered, so that it need not wait.

    Raises:
        ChildProcessError: the raylet has ended.
    """
    state = ray._private.state.GlobalState()  # noqa: SLF001 - see above
    options = ray._private.services._get_gcs_client_options(address)  # noqa: SLF001 - the same
    state._initialize_global_state(options)  # noqa: SLF001 - the same
    end = time.monotonic() + START_MAX_S
    while time.monotonic() < end and node not in {each["NodeID"] for each in state.node_table()}:
        for raylet in raylets:
            if (code := raylet.poll()) is not None:
                raise ChildProcessError(f"its raylet has ended with code {code}")
        time.sleep(_LOOK_S)
    return get_node(address, node)


def _missing_soon(missing: Callable[[], ImportError | None]) -> ImportError | None:
    """Return the first part of the dashboard that is not installed; None if all is."""
    return missing() if find_spec(_GRPC) else ImportError(f"{_GRPC} is not installed")
