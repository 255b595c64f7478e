"""What a fork does with the Ray of its parent: nothing.

Ray's threads do not exist in a fork, and its sockets are the parent's. Without this, the end of the
fork waits for ever in ``ray.shutdown()``, or for a GCS that is told of an error, and Ray's C++ ends
it by a signal. Ray cannot be joined again there, because its C++ has one core worker for the life
of a process.
"""

from __future__ import annotations

import atexit
import ctypes
import os

import ray

from rocketray.errors import ForkedError
from rocketray.runtime.one_process import keep_for_ever

_process = os.getpid()
_inherited_from: int | None = None
_LIBC = ctypes.CDLL(None)


def refuse_inherited_ray() -> None:
    """Raise :class:`ForkedError` in a fork of a process that had a Ray."""
    if _inherited_from is not None:
        raise ForkedError("connection to Ray", _inherited_from, os.getpid())


def _set_aside() -> None:
    """Take the parent's Ray for none, and never free a part of it; the exit code stays."""
    global _process, _inherited_from  # noqa: PLW0603 - of this process
    maker, _process = _process, os.getpid()
    if not ray.is_initialized():
        return
    _inherited_from = maker
    worker, state = ray._private.worker, ray._private.state.state  # noqa: SLF001 - Ray has no way
    atexit.unregister(worker.shutdown)
    joined = worker.global_worker
    parts = [joined, joined.node, worker._global_node, state]  # noqa: SLF001 - as above
    parts += [getattr(joined, "core_worker", None), getattr(state, "global_state_accessor", None)]
    for part in parts:  # their destructors would need the parent's threads
        keep_for_ever(part)
    joined.set_is_connected(False)
    joined.set_mode(None)
    worker._global_node = None  # noqa: SLF001 - as above
    _LIBC.on_exit(_LIBC._exit, None)  # noqa: SLF001 - before the destructors of C++


os.register_at_fork(after_in_child=_set_aside)
