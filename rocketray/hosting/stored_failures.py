"""The last failure of each host, stored at Ray's head: it outlives its process, as JSON.

Ray's key-value store holds it as long as it holds the named actors themselves. Any process that has
joined that Ray can read it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict

from ray.exceptions import RayActorError, RayError, RuntimeEnvSetupError
from ray.experimental import internal_kv

from .host_failure import HostFailure

# Ray's store is one for all clusters and programs on it.
_NAMESPACE = "rocketray-hosts"


def why_no_answer(error: RayError) -> str:
    """Return a line on *error*, with which Ray answered for a host that has no process.

    Ray's text ends with the error itself if the process could not be set up.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    address = re.search(r"\bip=([^,)\s]+)", lines[0])
    if isinstance(error, RuntimeEnvSetupError):
        return f"Ray cannot set up its code: {lines[-1]}; see runtime_env_agent.log in Ray's logs"
    if address is not None and lines[-1].startswith("ModuleNotFoundError: "):
        return (
            f"the Python of Ray on the machine {address[1]} lacks a package: {lines[-1]}; install "
            "rocketray there, or choose other machines with --label"
        )
    if isinstance(error, RayActorError):
        return f"its process ended: {lines[0]}"
    return lines[0]


def store_failure(name: str, failure: HostFailure) -> None:
    """Store *failure* as the last one of the host *name*."""
    internal_kv._internal_kv_put(  # noqa: SLF001  # Ray has no other
        name, json.dumps(asdict(failure)), overwrite=True, namespace=_NAMESPACE
    )


def last_failure(name: str) -> HostFailure | None:
    """Return the last failure of the host *name*; None if there is none that can be read."""
    text = internal_kv._internal_kv_get(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
    try:
        return None if text is None else HostFailure(**json.loads(text))
    except (TypeError, ValueError):
        # It was written by a release with other fields.
        return None


def forget_failure(name: str) -> None:
    """Delete the failure of the host *name*, which has been removed."""
    internal_kv._internal_kv_del(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
