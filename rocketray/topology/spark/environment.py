"""The process's environment, where Spark leaves no other way.

Spark's launcher and its Python workers are told things only by environment variables: the JVM
reads JAVA_HOME, the workers inherit PYSPARK_PYTHON and ROCKETRAY_DATA. This is the one module
below the command line that touches ``os.environ``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DATA_VARIABLE", "DEFAULT_DATA", "data_directory", "process_environ", "with_environ"]

DATA_VARIABLE = "ROCKETRAY_DATA"
DEFAULT_DATA = "rocketray-data"


def process_environ() -> Mapping[str, str]:
    """The environment of this process, as it is now."""
    return dict(os.environ)


def data_directory(given: str | None, environ: Mapping[str, str]) -> Path:
    """The data directory that was asked for, else ROCKETRAY_DATA's, else ./rocketray-data.

    Absolute, so that it means the same in every process of the query.
    """
    return Path(given or environ.get(DATA_VARIABLE) or DEFAULT_DATA).absolute()


@contextmanager
def with_environ(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes started inside; what was there before comes back."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
