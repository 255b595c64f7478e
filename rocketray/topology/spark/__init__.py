"""Spark Structured Streaming: source and sinks; only the modules of this package import pyspark.

The names below are loaded on first use, so importing this package does not import pyspark. As
``rr.spark`` it is part of the public API.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .progress_lag import lag_metrics
    from .record_schema import schema
    from .session import spark_session
    from .sink import RestartPolicy, SinkHost, SinkStatistics, committed_files

__all__ = [
    "RestartPolicy",
    "SinkHost",
    "SinkStatistics",
    "committed_files",
    "lag_metrics",
    "schema",
    "spark_session",
]

# Where pandas 3 is installed, importing pyspark warns every time; nothing here uses pandas.
warnings.filterwarnings(
    "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
)

_LOADED_FROM = {
    "RestartPolicy": "sink",
    "SinkHost": "sink",
    "SinkStatistics": "sink",
    "committed_files": "sink",
    "lag_metrics": "progress_lag",
    "schema": "record_schema",
    "spark_session": "session",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LOADED_FROM[name]}"), name)
