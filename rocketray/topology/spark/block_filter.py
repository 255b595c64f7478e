"""Which messages of a block of a queue match a subscription.

TAG: tags codes are compared on the consume queue, then the tags themselves, since two tags can
have one code. SQL92: the properties that the expression names are read as columns, and each
distinct row of values is judged once. CLASS needs the operator's allow-list: not offered on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt

from rocketray.errors import ConfigError, FilterEvaluationError
from rocketray.filters.message_filter import MessageFilter, compile_filter
from rocketray.filters.subscription import Subscription, parse
from rocketray.store.columns import read_properties
from rocketray.store.reader import EntryColumns, QueueReader

__all__ = ["BlockFilter"]

_TAG_BLOCK_ENTRIES = 1 << 18  # 5 MiB of the consume queue
_SQL_BLOCK_ENTRIES = 1 << 14  # each makes strings of what the expression names


class BlockFilter:
    """A subscription made ready. ``evaluation_errors`` counts messages that it failed on."""

    def __init__(self, subscription: Subscription) -> None:
        """Compile it.

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
        self._names = sorted(self._filter.property_names)

    def select(self, reader: QueueReader, start: int, stop: int) -> EntryColumns:
        """The matching entries from *start* up to, not including, *stop*, in queue order."""
        entries = reader.match_tags(start, stop, self._codes)
        if len(entries) == 0:
            return entries
        if self._filter.needs_record:
            return entries.select(self._judge(reader, entries))
        if self._codes is not None:
            return entries.select(reader.have_tags(entries, self._tags))
        return entries

    def _judge(self, reader: QueueReader, entries: EntryColumns) -> npt.NDArray[np.bool_]:
        """Stage two of SQL92: bool[n]."""
        values = read_properties(reader, entries, self._names)
        columns = [column.to_pylist() for column in values.columns]
        rows = zip(*columns, strict=True) if columns else repeat((), len(entries))
        verdicts: dict[tuple[str | None, ...], bool | None] = {}
        matches = np.zeros(len(entries), np.bool_)
        for number, row in enumerate(rows):
            if row not in verdicts:
                verdicts[row] = _matches(self._filter, self._names, row)
            verdict = verdicts[row]
            matches[number] = verdict is True
            self.evaluation_errors += verdict is None
        return matches


def _matches(
    compiled: MessageFilter, names: Sequence[str], row: Sequence[str | None]
) -> bool | None:
    """Whether the expression is true of these values; None when it fails on them."""
    values = zip(names, row, strict=True)
    try:
        return compiled.matches_properties({k: value for k, value in values if value is not None})
    except FilterEvaluationError:
        return None
