"""Registered SQL92 filters and their file, as in a broker: ``config/consumerFilter.json``.

- A filter is alive while a member of its group is. It is born when its expression is registered
  first, and again when that changes. It dies with the last member or with the group, and is removed
  a day later.
- The file tells readers of bitmaps which groups' bits are in them, and since when.
- There is one file for the node, kept by the coordinator, and one in each shard that ever kept
  bitmaps, with the filters of those bitmaps.

Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rocketray.errors import ConfigError
from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription

_LOG = logging.getLogger(__name__)


def is_registered(subscription: Subscription) -> bool:
    """Return whether the file has it, and bitmaps are made of it: SQL92, of either dialect."""
    return subscription.expression_type == "SQL92"


class SqlFilters:
    """The registered filters, and their file."""

    def __init__(self, path: Path, clock_ms: Callable[[], int]) -> None:
        """Take over the file at *path*, or begin without it if it is missing or damaged.

        Filters that are not known are born again when members report them. A filter from an older
        copy may have changed since, and the bits of its successor would be taken for its own.
        """
        self._path = path
        self.manager = ConsumerFilterManager(clock_ms=clock_ms)
        """The filters, of which bitmaps are made."""
        self._unsaved = False
        if path.exists():
            try:
                self.manager.load(path)
            except ConfigError as error:
                _LOG.warning("%s; it is recreated, and older bitmaps are not used", error)

    def register_living(
        self,
        living: Iterable[LiveSubscription],
        born_after_ms: Mapping[tuple[str, str], int] | None = None,
    ) -> bool:
        """Make the SQL92 filters of *living* alive, and all others dead.

        *born_after_ms*, by topic and group, are times before which a filter cannot be born. The
        file is written if anything changed, or could not be written before; return whether it was.
        Raises OSError if it cannot be written.
        """
        before = self._snapshot()
        groups: dict[str, list[ConsumerSubscription]] = {
            group: [] for filters in before.values() for group in filters
        }
        for group, topic, subscription, since_ms in living:
            if is_registered(subscription):
                registered = ConsumerSubscription(topic, subscription, since_ms)
                groups.setdefault(group, []).append(registered)
        for group, subscriptions in groups.items():
            self.manager.register(group, subscriptions)
        for (topic, group), time_ms in (born_after_ms or {}).items():
            self.manager.delay_birth(topic, group, time_ms)
        self._unsaved |= self._snapshot() != before
        if not self._unsaved:
            return False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.manager.save(self._path)
        self._unsaved = False
        return True

    def _snapshot(self) -> dict[str, dict[str, ConsumerFilterData]]:
        return {topic: dict(filters) for topic, filters in self.manager.filters.items()}
