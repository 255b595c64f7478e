"""The types of what programs pass to an app, so that type checkers and editors know each name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol, TypedDict

from rocketray.filters.sql92 import Dialect
from rocketray.topology.tables.collections import Table
from rocketray.topology.values.topic import Value

from .stream import Stream

Handler = Callable[[Stream[Value]], Awaitable[Any] | AsyncIterator[Any]]
"""The function of an agent: ``async def``, with or without ``yield``."""


class MakeTable(Protocol):
    """``app.Table`` and its kin, which are Faust's methods and make our tables."""

    def __call__(
        self, name: str, *, default: Callable[[], Any] | None = None, **options: Any
    ) -> Table:
        """Declare a table; *default* makes the value of a new key."""


class DeclaredTopicOptions(TypedDict, total=False):
    """The options of ``app.topic`` that are Faust's."""

    pattern: str | re.Pattern[str] | None
    schema: Any
    key_type: Any
    key_serializer: Any
    value_serializer: Any
    partitions: int | None
    retention: float | timedelta | None
    compacting: bool | None
    deleting: bool | None
    replicas: int | None
    acks: bool
    internal: bool
    config: Mapping[str, Any] | None
    maxsize: int | None
    allow_empty: bool
    has_prefix: bool
    loop: Any


class SinkOptions(TypedDict, total=False):
    """The options of ``app.sink``, which are fields of ``SinkSpec``."""

    tags: str | None
    sql: str | None
    filter: str | None
    dialect: Dialect | None
    checkpoint: str | None
    trigger: str
    schema: str | None
    max_rows: int | None
    starting_offsets: str
    options: Mapping[str, str]
