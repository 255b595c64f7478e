"""The last failure of each host, kept where it outlives the host's process: at Ray's head.

Ray's key-value store holds them as long as it holds the named actors themselves, and is asked by
whoever has joined that Ray.
"""

from __future__ import annotations

from ray.experimental import internal_kv

from .host_failure import HostFailure

__all__ = ["forget", "note", "noted"]

_NAMESPACE = "rocketray-hosts"


def note(name: str, failure: HostFailure) -> None:
    """Keep *failure* as the last one of the host *name*."""
    internal_kv._internal_kv_put(  # noqa: SLF001  # Ray has no other
        name, failure.to_json(), overwrite=True, namespace=_NAMESPACE
    )


def noted(name: str) -> HostFailure | None:
    """The last failure of the host *name*; None: it has had none."""
    text = internal_kv._internal_kv_get(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
    return None if text is None else HostFailure.from_json(text)


def forget(name: str) -> None:
    """The host *name* is no more."""
    internal_kv._internal_kv_del(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
