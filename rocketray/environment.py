"""The process's environment, where Ray and Spark leave no other way.

Ray reads from environment variables whether there is a token; Spark's launcher and its Python
workers are told things by nothing else: the JVM reads JAVA_HOME, the workers inherit
PYSPARK_PYTHON and ROCKETRAY_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["process_environ", "with_environ"]


def process_environ() -> Mapping[str, str]:
    """The environment of this process, as it is now."""
    return dict(os.environ)


@contextmanager
def with_environ(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for what runs or is started inside, or unset them with None.

    What was there before comes back, also where the variable was set otherwise inside.
    """
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
