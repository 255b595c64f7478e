"""The environment variables of this process, for settings that Ray and Spark take no other way.

- Ray reads from them whether there is a token.
- Spark's JVM reads JAVA_HOME.
- Spark's Python workers inherit PYSPARK_PYTHON and ROCKETRAY_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def process_environ() -> Mapping[str, str]:
    """Return a copy of this process's environment, as it is now."""
    return dict(os.environ)


@contextmanager
def with_environ(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables, or unset them with None, for code and processes started inside the block.

    The previous values are restored on exit, also if the block changed a variable itself. All
    threads of the process see the changes.
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
