"""Ray Data: topics as bounded datasets, read and written; only this package imports ray.data.

The names below are loaded on first use, so importing this package does not import ray.data. As
``rr.ray_data`` it is part of the public API.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .read_options import ReadOptions
    from .topic_datasource import TopicDatasource, read_topic
    from .topic_sink import TopicSink, WriteOptions, write_topic

__all__ = [
    "ReadOptions",
    "TopicDatasource",
    "TopicSink",
    "WriteOptions",
    "read_topic",
    "write_topic",
]

_LOADED_FROM = {
    "ReadOptions": "read_options",
    "TopicDatasource": "topic_datasource",
    "TopicSink": "topic_sink",
    "WriteOptions": "topic_sink",
    "read_topic": "topic_datasource",
    "write_topic": "topic_sink",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if find_spec("pandas") is None:
            raise ModuleNotFoundError(
                "rr.ray_data needs pandas, which Ray Data imports; install it: "
                "pip install 'pandas>=2.2,<3'"
            )
        return getattr(import_module(f"{__name__}.{_LOADED_FROM[name]}"), name)
