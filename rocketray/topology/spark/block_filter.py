"""The filter of a block of a queue: which messages match a subscription.

- TAG: tags codes are compared on the consume queue, then the tags themselves, because two tags can
  have one code.
- SQL92: the expression is evaluated over the properties that it names.
- CLASS: needs the operator's allow-list, and is not supported on Spark.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.actors.filtering.filter_stream import sql_states
from rocketray.errors import ConfigError
from rocketray.filters.message_filter import compile_filter
from rocketray.filters.sql92.vectorized import State, VectorizedExpression
from rocketray.filters.subscription import Subscription, parse
from rocketray.store.reading.reader import EntryColumns, QueueReader

__all__ = ["BlockFilter"]

_TAG_BLOCK_ENTRIES = 1 << 18  # 5 MiB of the consume queue
_SQL_BLOCK_ENTRIES = 1 << 12  # the spans of their properties fit the cache


class BlockFilter:
    """A compiled subscription. ``evaluation_errors`` counts messages on which it failed."""

    def __init__(self, subscription: Subscription) -> None:
        """Compile the subscription.

        Raises:
            FilterSyntaxError: it does not parse.
            ConfigError: it is a class filter.
        """
        kind = subscription.expression_type
        if kind == "CLASS":
            raise ConfigError("a Spark query filters by tags or sql; filter further with .where()")
        self.evaluation_errors = 0
        self.block_entries = _TAG_BLOCK_ENTRIES if kind == "TAG" else _SQL_BLOCK_ENTRIES
        self._filter = compile_filter(subscription)
        self._codes = self._filter.tag_codes
        self._tags = sorted(parse(subscription.expression).tags_set) if kind == "TAG" else []

    def select(self, reader: QueueReader, start: int, stop: int) -> EntryColumns:
        """Return the matching entries from *start* up to, not including, *stop*, in queue order."""
        entries = reader.match_tags(start, stop, self._codes)
        if len(entries) == 0:
            return entries
        if self._filter.sql is not None:
            return entries.select(self._judge(reader, entries, self._filter.sql))
        if self._codes is not None:
            return entries.select(reader.have_tags(entries, self._tags))
        return entries

    def _judge(
        self, reader: QueueReader, entries: EntryColumns, expression: VectorizedExpression
    ) -> npt.NDArray[np.bool_]:
        """Return stage two of SQL92: bool[n]."""
        states = sql_states(expression, reader, entries)
        self.evaluation_errors += int(np.count_nonzero(states > State.NULL))
        return np.equal(states, State.TRUE)
