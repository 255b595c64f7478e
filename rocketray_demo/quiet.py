"""The stderr of Ray, the JVM and their workers: redirected into a file of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["stderr_in_file"]

_STDERR = 2


@contextmanager
def stderr_in_file(path: Path) -> Iterator[TextIO]:
    """Redirect file 2 of this process and of those that it starts to the end of *path*.

    Yields the previous stderr.
    """
    sys.stderr.flush()
    before = os.dup(_STDERR)
    with os.fdopen(before, "w", buffering=1) as stream, path.open("ab") as file:
        os.dup2(file.fileno(), _STDERR)
        try:
            yield stream
        finally:
            sys.stderr.flush()
            os.dup2(before, _STDERR)
