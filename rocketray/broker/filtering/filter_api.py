"""The service of the filter actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.runtime.calls.endpoint import FILTER_NAME, Endpoint, on_disk

from .filtered_lag import FilteredLag


@dataclass(frozen=True, slots=True)
class FilterStatistics:
    """The statistics of a filter actor.

    ``stuck_calls`` counts calls of predicates that exceeded their time and still have not returned.
    """

    pid: int
    streams: int
    stuck_calls: int


class FilterApi(Protocol):
    """The calls of the filter actor; see ``FilterEngine``."""

    def attach_ring(self, path: str) -> None:
        """Fill a member's match ring from now on."""

    def lags(
        self, groups: Sequence[GroupDescription]
    ) -> list[dict[int, FilteredLag] | StreamError]:
        """Return the lag of each group, in each queue of its topic, or why it is unknown."""

    def ask_predicate(self, subscription: Subscription, place: tuple[str, int, int]) -> bool:
        """Evaluate a class filter on the stored message at topic, queue and queue offset."""

    def statistics(self) -> FilterStatistics:
        """Return the current statistics."""


def filters_of(disk: str) -> Endpoint[FilterApi]:
    return Endpoint(on_disk(FILTER_NAME, disk), FilterApi)
