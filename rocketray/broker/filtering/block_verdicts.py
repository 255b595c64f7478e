"""The reason of a filter for each message of a block, on columns.

The reasons are those of :func:`~rocketray.filters.filter_verdict.explain_filter`, which decides on
one message. Bitmaps are not used: an undamaged one changes no reason. A predicate is imported and
run in this process, without a time limit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import FilterReason
from rocketray.kernels.condition_codes import State
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .filter_stream import RECORDS_MAX, SCAN_MAX, sql_states
from .predicate_stream import ask_all

REASONS = tuple(FilterReason)
"""The reasons by their numbers in the results."""
_NUMBERS = {reason: number for number, reason in enumerate(REASONS)}
MATCHED = _NUMBERS[FilterReason.MATCHED]
FAILED = (_NUMBERS[FilterReason.SQL_ERROR], _NUMBERS[FilterReason.CLASS_ERROR])
_Numbers = npt.NDArray[np.uint8]


class BlockVerdicts:
    """A filter that decides on the messages of a block."""

    def __init__(self, subscription: Subscription) -> None:
        """Compile *subscription*.

        Raises:
            FilterSyntaxError: its expression does not parse.
            PredicateError: its predicate cannot be imported.
        """
        self._filter = MessageFilter(subscription)
        self._tags = subscription.exact_tags
        self.block_max = RECORDS_MAX if self._filter.needs_record else SCAN_MAX
        """The number of entries that a block should have at most."""

    def reasons(self, reader: QueueReader, entries: EntryColumns) -> _Numbers:
        """Return the place in ``REASONS`` of the reason for each entry's message: uint8[n].

        Raises:
            OffsetOutOfRangeError: a record was deleted.
        """
        if not len(entries):
            return np.empty(0, np.uint8)
        if self._filter.sql is not None:
            return self._of_sql(reader, entries)
        if self._filter.subscription.expression_type == "CLASS":
            return self._of_class(reader, entries)
        return self._of_tags(reader, entries)

    def _of_tags(self, reader: QueueReader, entries: EntryColumns) -> _Numbers:
        found = np.full(len(entries), MATCHED, np.uint8)
        codes = self._filter.tag_codes
        if codes is None:
            return found
        # The address of a unit that cannot be read tells no tag: RocketMQ lets it pass.
        unknown = entries.tags_codes <= TAGS_CODE_EXT_MAX
        passed = unknown | np.isin(entries.tags_codes.astype(np.int32), codes)
        found[~passed] = _NUMBERS[FilterReason.TAG_MISMATCH]
        places = np.flatnonzero(passed)
        if self._tags and len(places):
            has_tag = reader.have_tags(entries.select(places), self._tags)
            found[places[~has_tag]] = _NUMBERS[FilterReason.TAG_COLLISION]
        return found

    def _of_sql(self, reader: QueueReader, entries: EntryColumns) -> _Numbers:
        assert self._filter.sql is not None
        states = sql_states(self._filter.sql, reader, entries)
        found = np.full(len(states), _NUMBERS[FilterReason.SQL_ERROR], np.uint8)
        found[states == State.TRUE] = MATCHED
        found[states == State.FALSE] = _NUMBERS[FilterReason.SQL_FALSE]
        found[states == State.NULL] = _NUMBERS[FilterReason.SQL_NULL]
        return found

    def _of_class(self, reader: QueueReader, entries: EntryColumns) -> _Numbers:
        verdicts = ask_all(self._filter, reader, entries).take()
        is_delivered = self._filter.subscription.on_error == "deliver"
        failed = FilterReason.MATCHED if is_delivered else FilterReason.CLASS_ERROR
        found = np.full(len(verdicts), _NUMBERS[failed], np.uint8)
        found[verdicts == 1] = MATCHED
        found[verdicts == 0] = _NUMBERS[FilterReason.CLASS_FALSE]
        return found
