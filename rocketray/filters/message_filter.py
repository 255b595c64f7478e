"""A compiled subscription, applied first to ConsumeQueue entries, then to records.

Invariants
  1. Stage one never rejects a message that stage two would accept.
  2. Failures raise; the caller counts them and decides what they mean.
  3. Pure: a filter counts nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.quantity import counted
from rocketray.errors import PredicateError

from .class_filter import batch_columns, load_predicate
from .sql92.vectorized import VectorizedExpression
from .subscription import Subscription, matches_code, matches_exactly, parse


class RecordView(Protocol):
    """The parts of a message that a filter may read; SQL92 reads ``properties`` only."""

    @property
    def topic(self) -> str:
        """The topic in which it is stored."""

    @property
    def tags(self) -> str | None:
        """The tag, or None."""

    @property
    def keys(self) -> Sequence[str]:
        """The business keys."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, tags and keys included."""

    @property
    def body(self) -> bytes:
        """The body."""


class MessageFilter:
    """A compiled filter; immutable, thread-safe.

    Its compiled parts cannot be pickled: send the subscription, and compile it at the receiver.

    Attributes:
        subscription: the source of the filter.
        tag_codes: the codes that pass stage one, int32[n] ascending; None when every entry passes.
        sql: the SQL92 expression, for many messages at once; None for the other kinds.
        batch_columns: the columns that a batch predicate reads; None for every other filter.
    """

    __slots__ = (
        "_predicate",
        "_scalar",
        "_tags",
        "batch_columns",
        "sql",
        "subscription",
        "tag_codes",
    )

    def __init__(
        self, subscription: Subscription, *, allowed: Collection[str] | None = None
    ) -> None:
        """Compile *subscription*; class filters may come from modules *allowed*, None for all.

        Raises:
            FilterSyntaxError: its expression does not parse.
            PredicateError: its predicate cannot be imported, or is not allowed.
        """
        kind, expression = subscription.expression_type, subscription.expression
        self.subscription = subscription
        self._tags = parse(expression if kind == "TAG" else "*")
        self._scalar = subscription.compiled() if kind == "SQL92" else None
        self.sql = VectorizedExpression(self._scalar) if self._scalar else None
        self._predicate = load_predicate(expression, allowed=allowed) if kind == "CLASS" else None
        self.batch_columns = batch_columns(self._predicate) if self._predicate else None
        self.tag_codes: npt.NDArray[np.int32] | None = None
        if self._tags.sub_string != "*":
            self.tag_codes = np.array(sorted(self._tags.code_set), np.int32)
            # A filter is immutable and shared between threads, and so is its array.
            self.tag_codes.flags.writeable = False

    @property
    def needs_record(self) -> bool:
        """Whether stage two reads the record: for SQL92 and class filters."""
        return self.sql is not None or self._predicate is not None

    def matches_entry(self, tags_code: int | None, _unit: object = None) -> bool:
        """Run stage one: return whether an entry may match. The ext unit is not needed."""
        return matches_code(self._tags, tags_code)

    def matches_record(self, message: RecordView) -> bool:
        """Run stage two: return whether the record matches.

        Raises:
            FilterEvaluationError: the expression failed on the message's properties.
            PredicateError: the class filter raised, or returned neither True nor False.
        """
        assert self.batch_columns is None
        if self._scalar is not None:
            return self._scalar.matches(message.properties)
        return self._predicate is None or self._ask_predicate(message)

    def matches_tags(self, tags: str | None) -> bool:
        """Run the consumer's second tag check, on the text: hashes can collide."""
        return matches_exactly(self._tags, tags)

    def matches_batch(self, batch: Any) -> npt.NDArray[np.bool_]:
        """Run stage two of a batch predicate: return bool[n] for a ``RecordBatch`` of n messages.

        Raises:
            PredicateError: it raised, or did not return one truth value for each message.
        """
        assert self._predicate is not None
        try:
            answer = self._predicate(batch)
        # A predicate that calls sys.exit must not end the filter's process.
        except (Exception, SystemExit) as error:
            raise self._failed(f"a batch of {len(batch)}", error) from error
        found = _truth_values(answer)
        if found is None or len(found) != len(batch):
            what = f"a {type(answer).__name__}" if found is None else counted(len(found), "value")
            reason = f"it returned {what}, not an array with one boolean for each message"
            raise self._failed(f"a batch of {len(batch)}", reason)
        return found

    def _ask_predicate(self, message: RecordView) -> bool:
        assert self._predicate is not None
        try:
            answer = self._predicate(message)
        except (Exception, SystemExit) as error:
            raise self._failed(_named(message), error) from error
        if not isinstance(answer, bool | np.bool_):
            reason = f"it returned {answer!r:.80}; a class filter must return True or False"
            raise self._failed(_named(message), reason)
        return bool(answer)

    def _failed(self, where: str, reason: str | BaseException) -> PredicateError:
        if isinstance(reason, BaseException):
            reason = f"{type(reason).__name__}: {reason}"
        return PredicateError(
            f"class filter {self.subscription.expression!r} failed on {where}: {reason}"
        )

    def __repr__(self) -> str:
        return f"MessageFilter({self.subscription!s})"


def _named(message: RecordView) -> str:
    return f"a message of topic {message.topic!r} with keys {list(message.keys)}"


def _truth_values(answer: Any) -> npt.NDArray[np.bool_] | None:
    """Return a batch predicate's result as bool[n], null as False; None for an invalid result."""
    if isinstance(answer, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(answer.type):
        return np.array(answer.to_pylist(), np.bool_)  # to_numpy() would import pandas
    if isinstance(answer, np.ndarray) and answer.dtype == np.bool_ and answer.ndim == 1:
        return answer
    return None
