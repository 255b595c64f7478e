"""The last failure of each host, stored at Ray's head, where it outlives the host's process.

Ray's key-value store holds them as long as it holds the named actors themselves. Any process that
has joined that Ray can read them.
"""

from __future__ import annotations

from ray.experimental import internal_kv

from .host_failure import HostFailure

__all__ = ["forget", "note", "noted"]

_NAMESPACE = "rocketray-hosts"


def note(name: str, failure: HostFailure) -> None:
    """Store *failure* as the last one of the host *name*."""
    internal_kv._internal_kv_put(  # noqa: SLF001  # Ray has no other
        name, failure.to_json(), overwrite=True, namespace=_NAMESPACE
    )


def noted(name: str) -> HostFailure | None:
    """Return the last failure of the host *name*; None: it has had none."""
    text = internal_kv._internal_kv_get(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
    return None if text is None else HostFailure.from_json(text)


def forget(name: str) -> None:
    """Delete the failure of the host *name*, which has been removed."""
    internal_kv._internal_kv_del(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
