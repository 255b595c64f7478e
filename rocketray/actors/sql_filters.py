"""The SQL92 filters of a node's groups, as a broker keeps them: ``config/consumerFilter.json``.

A filter is alive while some member of its group is. It is born when its expression is first heard
of, and again when that changes; it dies with the last member or with the group, and is forgotten
a day later. The file tells RocketMQ's tools and ``store query --filters`` which group's bits stand
in the bitmaps of a store; the node's own streams evaluate expressions and look at no bitmap.
Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.consumer_filter_data import ConsumerFilterData

from .groups import LiveSubscription
from .layout import config_directory

__all__ = ["SqlFilters"]

_ROCKETMQ = "rocketmq"  # the dialect that the file is of


class SqlFilters:
    """The registered filters, and their file."""

    def __init__(self, data: Path, clock_ms: Callable[[], int]) -> None:
        """Take over the file in a data directory, else the one before it; or begin without.

        Raises:
            ConfigError: it is no file of filters.
        """
        self._path = config_directory(data) / "consumerFilter.json"
        self._manager = ConsumerFilterManager(clock_ms=clock_ms)
        self._unsaved = False
        for path in (self._path, self._path.with_name(self._path.name + ".bak")):
            if path.exists():
                self._manager.load(path)
                break

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of a group for a topic."""
        return self._manager.find(topic, group)

    def settle(self, living: Iterable[LiveSubscription]) -> None:
        """Let those of *living* that are RocketMQ's SQL92 be alive, and no others.

        The file is written when that changes anything, or could not be written before. Raises
        OSError when it cannot.
        """
        before = self._snapshot()
        groups: dict[str, list[ConsumerSubscription]] = {
            group: [] for filters in before.values() for group in filters
        }
        for group, topic, subscription, since_ms in living:
            if subscription.expression_type == "SQL92" and subscription.dialect == _ROCKETMQ:
                groups.setdefault(group, []).append(
                    ConsumerSubscription(topic, subscription.expression, "SQL92", since_ms)
                )
        for group, subscriptions in groups.items():
            self._manager.register(group, subscriptions)
        self._unsaved |= self._snapshot() != before
        if self._unsaved:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._manager.save(self._path)
            self._unsaved = False

    def _snapshot(self) -> dict[str, dict[str, ConsumerFilterData]]:
        return {topic: dict(filters) for topic, filters in self._manager.filters.items()}
