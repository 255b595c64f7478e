"""A holder of parts of tables whose lease a test lets lapse."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PartHolder"]


@dataclass(eq=False)
class PartHolder:
    """Stands for a feed."""

    is_leased: bool = True
