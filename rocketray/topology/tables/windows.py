"""Faust's windowed tables, in which ``delta`` counts from the time that the table is relative to.

Faust's ``delta`` counts from the time of the message, whatever ``value`` is relative to: with
``relative_to_field`` it reads windows in which nothing was counted.

Faust types that method's argument as a descriptor. A type checker sees the field's own type in
``Visit.at`` (typed_record.py), so here it is Any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from faust.tables.sets import SetWindowSet
from faust.tables.wrappers import WindowSet as FaustWindowSet
from faust.tables.wrappers import WindowWrapper as FaustWindowWrapper


class _Delta:
    """The windows of one key; mixed in before a class of Faust's."""

    key: Any
    event: Any
    wrapper: _Windows

    def delta(self, d: Any, event: Any = None) -> Any:
        """Return the value of the window *d*, seconds or a timedelta, before that of ``value``."""
        return self.wrapper.value_before(self.key, d, event or self.event)


class _WindowSet(_Delta, FaustWindowSet):  # type: ignore[misc]  # Faust's types are not followed
    """The windows of a key of a table."""


class _SetWindowSet(_Delta, SetWindowSet):  # type: ignore[misc]  # the same
    """The windows of a key of a table of sets."""


class _Windows:
    """A windowed table; mixed in before Faust's class."""

    table: Any
    get_timestamp: Any
    _keys: Any

    def relative_to_field(self, field: Any) -> Self:
        """Choose windows by the time, in seconds, in a *field* of the values: ``Visit.at``."""
        relative: Self = super().relative_to_field(field)  # type: ignore[misc]  # Faust's class has it
        return relative

    def value_before(self, key: Any, d: Any, event: Any = None) -> Any:
        """Return the value of *key* in the window of the time *d* before the table's time."""
        table = self.table
        return table._get_key((key, table.window.delta(self.get_timestamp(event), d)))  # noqa: SLF001  # contract-tested

    def _items_delta(self, d: Any, event: Any = None) -> Iterator[tuple[Any, Any]]:
        for key in self._keys():
            try:
                value = self.value_before(key, d, event)
            except KeyError:
                # The key had nothing in that window.
                continue
            yield key, value


class WindowedTable(_Windows, FaustWindowWrapper):  # type: ignore[misc]  # the same
    """A windowed table of values."""

    ValueType = _WindowSet


class WindowedTableOfSets(_Windows, FaustWindowWrapper):  # type: ignore[misc]  # the same
    """A windowed table of sets."""

    ValueType = _SetWindowSet
