"""Spark Structured Streaming: source and sinks; only the modules of this package import pyspark.

The names below are loaded on first use, so importing this package does not import pyspark. As
``rr.spark`` it is part of the public API.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketray.topology.app.sink_statistics import SinkStatistics
    from rocketray.topology.app.spark_options import SparkOptions

    from . import exactly_once
    from .failures import describe_failure
    from .file_sink_log import committed_files
    from .progress_lag import lag_metrics
    from .record_schema import schema
    from .session import enter_thread, spark_session
    from .sink import SinkHost
    from .sink_runner import RestartPolicy

__all__ = [
    "RestartPolicy",
    "SinkHost",
    "SinkStatistics",
    "SparkOptions",
    "committed_files",
    "describe_failure",
    "enter_thread",
    "exactly_once",
    "lag_metrics",
    "schema",
    "spark_session",
]

# Where pandas 3 is installed, importing pyspark warns every time; nothing here uses pandas.
warnings.filterwarnings(
    "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
)

_LOADED_FROM = {
    "RestartPolicy": f"{__name__}.sink_runner",
    "SinkHost": f"{__name__}.sink",
    "SinkStatistics": "rocketray.topology.app.sink_statistics",
    "SparkOptions": "rocketray.topology.app.spark_options",
    "committed_files": f"{__name__}.file_sink_log",
    "describe_failure": f"{__name__}.failures",
    "enter_thread": f"{__name__}.session",
    "lag_metrics": f"{__name__}.progress_lag",
    "schema": f"{__name__}.record_schema",
    "spark_session": f"{__name__}.session",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "exactly_once":
            return import_module(f"{__name__}.{name}")
        if name not in _LOADED_FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LOADED_FROM[name]), name)
