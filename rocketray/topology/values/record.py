"""Faust's ``Record``, with constructors that type checkers can check.

At run time it is Faust's own class. A checker sees a dataclass: each field is an argument, by
position or by name, and one without a default has to be given. Faust lets a field that may be None
be left out; a checker wants ``= None`` written there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import faust

__all__ = ["Record"]

if TYPE_CHECKING:
    # Not derived from Faust's class: a checker that takes part of Faust for Any checks nothing.
    from collections.abc import Mapping
    from typing import Any, Self, dataclass_transform

    @dataclass_transform()
    class Record:
        """A value of a topic: its annotated fields, written as JSON."""

        def __init_subclass__(cls, **options: Any) -> None:
            """*options* are Faust's, such as ``serializer=`` and ``validation=``."""

        @classmethod
        def from_data(cls, data: Any, *, preferred_type: Any = None) -> Self:
            """Make one of what :meth:`to_representation` gave."""
            ...

        @classmethod
        def loads(cls, s: bytes, *, default_serializer: Any = None, serializer: Any = None) -> Self:
            """Make one of its JSON."""
            ...

        def dumps(self, *, serializer: Any = None) -> bytes:
            """Write it as bytes, JSON by default."""
            ...

        def derive(self, *objects: Any, **fields: Any) -> Self:
            """Copy it with other values in some fields."""
            ...

        def to_representation(self) -> Mapping[str, Any]:
            """Give what is written: its fields, and its class under ``__faust``."""
            ...

        def asdict(self) -> dict[str, Any]:
            """Give its fields."""
            ...

        def is_valid(self) -> bool:
            """Say whether all fields are as their types want."""
            ...

        def validate(self) -> list[Any]:
            """Give what is wrong with the fields."""
            ...

        def validate_or_raise(self) -> None:
            """Raise what is wrong with the fields."""
            ...

        @property
        def validation_errors(self) -> list[Any]:
            """What is wrong with the fields."""
            ...


else:
    Record = faust.Record
