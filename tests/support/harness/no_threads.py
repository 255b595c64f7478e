"""A process that has as many threads as it may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def no_threads() -> Iterator[None]:
    """Let no thread be started meanwhile."""
    error = RuntimeError("can't start new thread")
    with mock.patch.object(threading.Thread, "start", side_effect=error):
        yield
