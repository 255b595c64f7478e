"""Whether this machine has a raylet: a program joins a Ray through one; Ray waits a minute for it.

Ray looks for its process among those of the machine, so the answer here is the one that Ray has.
"""

from __future__ import annotations

import logging

import ray

_LOG = logging.getLogger(__name__)


def tell_of_no_raylet(address: str) -> None:
    """Log a warning if the Ray at *address* is about to wait for a raylet on this machine."""
    if (said := no_raylet(address)) is not None:
        _LOG.warning("%s; waiting for a minute at most", said)


def no_raylet(address: str) -> str | None:
    """Return that no raylet runs on this machine, and what to do; None if one does."""
    if ray._private.services.find_node_ids():  # noqa: SLF001 - Ray has no public way
        return None
    return (
        f"no Ray runs on this machine, which a program needs to use the one at {address}; start it "
        f"with: ray start --address={address}"
    )
