"""A defect of a store, as verification and scrubs report it."""

from __future__ import annotations

from dataclasses import dataclass

from rocketray.base.json_fields import Natural


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect at byte ``offset`` of ``file``."""

    file: str
    offset: Natural
    what: str
