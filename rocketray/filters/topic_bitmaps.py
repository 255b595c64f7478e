"""The filter bitmaps of many messages of one topic at once.

The properties that the filters name are found in one pass over the messages, an
expression shared by several groups is evaluated once, and the bits are ORed column by column.
The oracle is ``ConsumerFilterManager.bitmap``, which takes one message.

Bits follow RocketMQ's rules, in either dialect. Where these fail, there is no match in RocketMQ's
dialect, as in a broker, and a possible match in the dialect "rocketray": its later rules give a
verdict there, and no different verdict elsewhere. So its bits never exclude a message that it
matches, whatever the version of the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.kernels.properties import find_properties, join_names

from .consumer_filter_data import ConsumerFilterData
from .sql92 import Dialect, compile_expression
from .sql92.vectorized import State, VectorizedExpression

__all__ = ["TopicBitmaps"]

_Int64s = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_BLOCK = 1024  # messages whose spans fit into the cache while every expression reads them


class _Bits(NamedTuple):
    """An expression, the rows of property values that it reads, and the bits that it sets."""

    expression: VectorizedExpression
    rows: npt.NDArray[np.intp]
    masks: list[tuple[int, np.uint8]]
    looks_at_failures: bool


class TopicBitmaps:
    """The compiled filters of one topic. Immutable; thread-safe."""

    __slots__ = ("_bitmap_bytes", "_bounds", "_expressions", "_names")

    def __init__(self, filters: Iterable[ConsumerFilterData], bit_count: int) -> None:
        """Compile *filters*, whose bits are positions in bitmaps of *bit_count*."""
        bits: dict[tuple[str, Dialect], set[int]] = {}
        for data in filters:
            bits.setdefault((data.expression, data.dialect), set()).update(data.bit_positions)
        compiled = {
            (sql, dialect): VectorizedExpression(compile_expression(sql, dialect, 1))
            for sql, dialect in bits
        }
        names = list(dict.fromkeys(name for one in compiled.values() for name in one.names))
        rows = {name: row for row, name in enumerate(names)}
        self._names, self._bounds = join_names(tuple(names))
        self._bitmap_bytes = bit_count // 8
        self._expressions = [
            _Bits(
                one,
                np.array([rows[name] for name in one.names], np.intp),
                _masks(bits[sql, dialect]),
                dialect != "rocketmq",
            )
            for (sql, dialect), one in compiled.items()
        ]

    def of(self, data: _Bytes, starts: _Int64s, sizes: _Int64s) -> _Bytes:
        """Return the bitmaps of *n* messages, uint8[n, bytes].

        Their property strings lie in *data* uint8, at *starts* int64[n] with *sizes* int64[n].
        """
        found = np.zeros((len(starts), self._bitmap_bytes), np.uint8)
        for first in range(0, len(starts), _BLOCK):
            part = slice(first, first + _BLOCK)
            self._set_bits(data, starts[part], sizes[part], found[part])
        return found

    def _set_bits(self, data: _Bytes, starts: _Int64s, sizes: _Int64s, found: _Bytes) -> None:
        value_starts = np.empty((len(self._bounds) - 1, len(starts)), np.int64)
        value_sizes = np.empty_like(value_starts)
        find_properties(data, starts, sizes, self._names, self._bounds, value_starts, value_sizes)
        for expression, rows, masks, looks_at_failures in self._expressions:
            states = expression.evaluate(data, value_starts[rows], value_sizes[rows])
            may_match = states == State.TRUE
            if looks_at_failures:
                may_match |= states > State.NULL
            for place, mask in masks:
                found[:, place] |= may_match.view(np.uint8) * mask


def _masks(positions: Iterable[int]) -> list[tuple[int, np.uint8]]:
    """Return the bytes of a bitmap that *positions* touch, with the bits of each."""
    masks: dict[int, int] = {}
    for bit in positions:
        masks[bit >> 3] = masks.get(bit >> 3, 0) | 1 << (bit & 7)
    return [(place, np.uint8(mask)) for place, mask in sorted(masks.items())]
