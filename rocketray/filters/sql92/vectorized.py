"""An expression over many messages at once: properties as spans, or as Arrow columns.

Each row gets one of four results: false, true, unknown, or an error, whose kind is in the state
(see :class:`~rocketray.kernels.condition_codes.State`). All are equal to the scalar evaluator's,
errors included: :class:`CompiledExpression` is the oracle, and settles the rows that the kernel
marks ODD, one by one.

The reasons for an interpreter in one kernel, and not NumPy over blocks of columns:
- It takes one row at a time, so AND and OR skip the same operands as the scalar evaluator, and an
  error surfaces where that one raises, without masks.
- It converts no property of a row that is decided already.
- A call costs a few microseconds whatever the expression; NumPy pays this for every operator, which
  matters for a pull of 32 messages.
- Like NumPy it compiles no machine code per expression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketray.errors import ConfigError
from rocketray.kernels.condition_codes import State
from rocketray.kernels.conditions import run_program
from rocketray.kernels.properties import join_names
from rocketray.kernels.record_conditions import Conditions
from rocketray.message import decode_text

from .compiled import CompiledExpression
from .program import compile_program, state_of

__all__ = ["PROPERTIES_COLUMN", "State", "VectorizedExpression"]

PROPERTIES_COLUMN = "properties"

Bytes = npt.NDArray[np.uint8]
Spans = tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]


class VectorizedExpression:
    """An expression compiled for many messages. Immutable, safe to share between threads.

    Attributes:
        names: the properties that it reads, in the order of the given spans.
        conditions: the names and the conditions on them, for ``QueueReader.judge``.
    """

    __slots__ = ("_expression", "_program", "conditions", "names")

    def __init__(self, expression: CompiledExpression) -> None:
        self._expression = expression
        program = compile_program(expression.tree)
        self.names = program.names
        self._program = (
            program.code,
            program.doubles,
            program.texts,
            program.bounds,
            program.patterns,
        )
        names, name_bounds = join_names(program.names)
        self.conditions = Conditions(names, name_bounds, *self._program)

    def evaluate(
        self,
        segment: Bytes,
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> Bytes:
        """Return the state of each of *n* rows: uint8[n].

        ``starts``, ``sizes`` int64[names, n] are spans of UTF-8 in ``segment`` uint8, a size below
        0 where a row has no such property; as ``kernels.properties.find_properties`` writes them.
        """
        states = np.empty(starts.shape[1], np.uint8)
        if run_program(segment, starts, sizes, *self._program, states):
            self._settle(segment, starts, sizes, states)
        return states

    def evaluate_arrow(self, batch: Any) -> Bytes:
        """Return the state of each row of a ``pyarrow.RecordBatch``: uint8[n].

        Properties are looked up in its column "properties" if that is a map of strings, else
        each in the string column of its name; a null or a missing column is an absent property.

        Raises:
            ConfigError: a property's column holds no strings.
        """
        position = batch.schema.get_field_index(PROPERTIES_COLUMN)
        if position >= 0 and pa.types.is_map(batch.schema.field(position).type):
            return self.evaluate(*_spans_of_map(batch.column(position), self.names))
        return self.evaluate(*_spans_of_columns(batch, self.names))

    def _settle(
        self,
        segment: Bytes,
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        states: Bytes,
    ) -> None:
        """Evaluate the rows that the kernel left undecided."""
        for row in np.flatnonzero(states == State.ODD).tolist():
            properties = {
                name: decode_text(segment[start : start + size].tobytes())
                for name, start, size in zip(
                    self.names, starts[:, row].tolist(), sizes[:, row].tolist(), strict=True
                )
                if size >= 0
            }
            states[row] = state_of(self._expression.evaluate, properties)

    def __repr__(self) -> str:
        return f"VectorizedExpression({self._expression.sql!r})"


def _room(names: tuple[str, ...], count: int) -> tuple[Any, Any]:
    return np.zeros((len(names), count), np.int64), np.full((len(names), count), -1, np.int64)


def _spans_of_map(column: Any, names: tuple[str, ...]) -> Spans:
    """Return the spans of the last entry of each name in each map."""
    starts, sizes = _room(names, len(column))
    bounds = np.frombuffer(column.offsets.buffers()[1], np.int32)
    bounds = bounds[column.offsets.offset : column.offsets.offset + len(column) + 1]
    first, last = (int(bounds[0]), int(bounds[-1])) if len(column) else (0, 0)
    keys, items = column.keys[first:last], column.items[first:last]
    segment, item_starts, item_sizes = _spans(items, "a property")
    rows = np.repeat(np.arange(len(column)), np.diff(bounds)) if len(column) else bounds[:0]
    present = column.is_valid().to_numpy(zero_copy_only=False)
    for number, name in enumerate(names):
        found = np.flatnonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))
        found = found[present[rows[found]]]
        starts[number, rows[found]] = item_starts[found]
        sizes[number, rows[found]] = item_sizes[found]
    return segment, starts, sizes


def _spans_of_columns(batch: Any, names: tuple[str, ...]) -> Spans:
    starts, sizes = _room(names, batch.num_rows)
    segments = [np.empty(0, np.uint8)]
    shift = 0
    for number, name in enumerate(names):
        position = batch.schema.get_field_index(name)
        if position >= 0:
            segment, column_starts, column_sizes = _spans(batch.column(position), repr(name))
            starts[number], sizes[number] = column_starts + shift, column_sizes
            segments.append(segment)
            shift += len(segment)
    return np.concatenate(segments), starts, sizes


def _spans(array: Any, what: str) -> Spans:
    """Return the spans of a string array in its own data; no byte is copied."""
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_string(array.type):
        raise ConfigError(f"the column of {what} has type {array.type}; properties are strings")
    _, offsets, data = array.buffers()
    segment = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if len(array) == 0:
        return segment, np.empty(0, np.int64), np.empty(0, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    starts = bounds[:-1].astype(np.int64)
    sizes = bounds[1:] - starts
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return segment, starts, sizes
