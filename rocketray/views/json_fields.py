"""The fields of a dataclass by their names in JSON's style."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def json_fields(value: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a dataclass by their names in JSON's style: ``queueId``."""
    return {_camel_case(each.name): getattr(value, each.name) for each in fields(value)}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
