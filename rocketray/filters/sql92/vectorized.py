"""An expression over many messages at once, whose properties are spans of a buffer.

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

import numpy as np
import numpy.typing as npt

from rocketray.base.property_string import decode_text
from rocketray.kernels.condition_codes import State
from rocketray.kernels.conditions import run_program

from .compiled import CompiledExpression
from .program import compile_program, state_of

Bytes = npt.NDArray[np.uint8]


class VectorizedExpression:
    """An expression compiled for many messages. Immutable, safe to share between threads.

    Attributes:
        names: the properties that it reads, in the order of the given spans.
        conditions: the names and the conditions on them, for ``QueueReader.judge``.
    """

    __slots__ = ("_expression", "_program", "conditions", "names")

    def __init__(self, expression: CompiledExpression) -> None:
        self._expression = expression
        self.names = tuple(sorted(expression.property_names))
        self.conditions = compile_program(expression.tree)
        self._program = self.conditions[2:]

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
