"""The demo's class filter: a plain function of a message that the node imports by its path."""

from __future__ import annotations

from typing import Protocol

import orjson

EVENING = 2200  # local times are written as hhmm
MORNING = 500


class _HasBody(Protocol):
    @property
    def body(self) -> bytes: ...


def is_red_eye(message: _HasBody) -> bool:
    """Return whether the flight left at ten in the evening or later, or before five in the morning.

    The time of departure is in the body only, which SQL92 filters cannot read.
    """
    departure = orjson.loads(message.body)["dep_time"]
    return departure is not None and (departure >= EVENING or departure < MORNING)
