"""Faust's ``Record``, with constructors that type checkers can check.

At run time it is Faust's class, whose fields read sets, tuples, dates and UUIDs as declared
(typed_fields.py). A checker sees a dataclass: each field is an argument, by position or by name,
and one without a default is required. Faust lets a nullable field be left out; a checker requires
``= None`` there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import faust

from . import exact_json as exact_json  # noqa: PLC0414  # the codec of Record.dumps
from .typed_fields import read_as_declared

if TYPE_CHECKING:
    # Not derived from Faust's class: a checker that treats part of Faust as Any checks nothing.
    from collections.abc import Mapping
    from typing import Any, Self, dataclass_transform

    @dataclass_transform()
    class Record:
        """A value of a topic: its annotated fields, written as JSON."""

        def __init_subclass__(cls, **options: Any) -> None:
            """Accept Faust's *options*, such as ``serializer=`` and ``validation=``."""

        @classmethod
        def from_data(cls, data: Any, *, preferred_type: Any = None) -> Self:
            """Return a record from the result of :meth:`to_representation`."""

        @classmethod
        def loads(cls, s: bytes, *, default_serializer: Any = None, serializer: Any = None) -> Self:
            """Return a record from its JSON."""

        def dumps(self, *, serializer: Any = None) -> bytes:
            """Return the record as bytes, JSON by default."""

        def derive(self, *objects: Any, **fields: Any) -> Self:
            """Return a copy with other values in some fields."""

        def to_representation(self) -> Mapping[str, Any]:
            """Return the serialized form: its fields, and its class under ``__faust``."""

        def asdict(self) -> dict[str, Any]:
            """Return the fields."""

        def is_valid(self) -> bool:
            """Return whether all fields have values of their types."""

        def validate(self) -> list[Any]:
            """Return the errors of the fields."""

        def validate_or_raise(self) -> None:
            """Raise the first error of the fields."""

        @property
        def validation_errors(self) -> list[Any]:
            """The errors of the fields."""


else:

    class _Record(faust.Record, abstract=True):
        """Faust's Record; each field is read as the type that it declares."""

        def __init_subclass__(cls, *arguments, **options):  # noqa: ANN002, ANN003, ANN204
            super().__init_subclass__(*arguments, **options)
            if "__init__" in vars(cls):
                # Faust generates it, and Python's error for a missing field names it by this.
                cls.__init__.__qualname__ = f"{cls.__qualname__}.__init__"

        @classmethod
        # Without types: mypy reads the class above, and not this one.
        def _contribute_field_descriptors(cls, target, options, parent=None):  # noqa: ANN001, ANN206
            fields = super()._contribute_field_descriptors(target, options, parent)
            for field in fields.values():
                read_as_declared(field)
            return fields

    Record = _Record
    Record.__name__ = Record.__qualname__ = "Record"  # as users know it
