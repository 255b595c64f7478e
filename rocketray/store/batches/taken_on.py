"""Columns of properties that were read from a topic, for messages that are made of these rows.

What does not travel is left out, as with ``marks.taken_on``: a row becomes another message. Where
that has a key of its own, so is the one that was read, as with ``marks.keyed``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.marks import LEFT_BEHIND, OF_THE_KEY


def taken_on_column(properties: Any) -> Any:
    """Return a ``map<string, string>`` array without what does not travel; null rows stay null."""
    from pyarrow.compute import is_in  # noqa: PLC0415 - its import takes 0.1 s

    if not len(properties):
        return properties
    pairs = _Pairs.of(properties)
    is_left = is_in(pairs.names, value_set=pa.array(sorted(LEFT_BEHIND), pairs.names.type))
    return pairs.without(is_left.to_numpy(zero_copy_only=False))


def keyed_column(properties: Any, sharding_keys: Any) -> Any:
    """Return *properties* without the keys of rows that have one in *sharding_keys*, too.

    The form of a key is left out if the other one differs. Both columns have the same rows.
    """
    from pyarrow.compute import equal, not_equal  # noqa: PLC0415 - its import takes 0.1 s

    if not len(properties):
        return properties
    pairs = _Pairs.of(properties)
    is_key, is_form = (
        equal(pairs.names, name).to_numpy(zero_copy_only=False) for name in OF_THE_KEY
    )
    numbers = np.flatnonzero(is_key)
    keys = sharding_keys.take(pa.array(pairs.rows[numbers]))
    differs = not_equal(pairs.texts.take(pa.array(numbers)), keys).fill_null(fill_value=False)
    is_other = np.zeros(len(properties), bool)
    is_other[pairs.rows[numbers]] = differs.to_numpy(zero_copy_only=False)
    is_given = sharding_keys.is_valid().to_numpy(zero_copy_only=False)
    return pairs.without((is_key & is_given[pairs.rows]) | (is_form & is_other[pairs.rows]))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs of a column of maps, each with the number of its row."""

    column: Any
    names: Any
    texts: Any
    bounds: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    @classmethod
    def of(cls, column: Any) -> _Pairs:
        offsets = column.offsets.to_numpy()
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        names, texts = (each.slice(first, count) for each in (column.keys, column.items))
        rows = np.repeat(np.arange(len(column)), np.diff(offsets))
        return cls(column, names, texts, offsets.astype(np.int64) - first, rows)

    def without(self, is_left: npt.NDArray[np.bool_]) -> Any:
        is_null = self.column.is_null().to_numpy(zero_copy_only=False)
        if not is_left.any() and not is_null.any():
            return self.column
        stays = ~is_left & ~is_null[self.rows]  # a null row may have pairs that no reader sees
        kept = np.concatenate(([0], np.cumsum(stays)))[self.bounds].astype(np.int32)
        return pa.MapArray.from_arrays(
            pa.array(kept, mask=np.append(is_null, False)),  # a null offset marks a null row
            self.names.filter(pa.array(stays)),
            self.texts.filter(pa.array(stays)),
            self.column.type,
        )
