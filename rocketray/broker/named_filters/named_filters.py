"""The coordinator's named filters: the book in force, its changes, and the groups that use it.

A change is saved before it takes effect. The coordinator's lock is not held meanwhile. Groups hold
their filters themselves, with the name, and need none of this to read: if the document is damaged,
with its copy, or of a later version, the named filters alone are closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from rocketray.broker.topics.topic_registry import TopicRegistry
from rocketray.errors import ConfigError, RegisterUnavailableError, StoreError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.runtime.files.file_documents import Documents

from .filter_book import FilterBook, NamedFilter, TopicFilters, book_json, parse_book
from .named_filters_api import FilterUse, GroupFilter, SavedFilter

_LOG = logging.getLogger(__name__)
_NAME = "namedFilters"
_USES_SHOWN = 5  # in one line; a filter may have hundreds


class NamedFilters:
    """All named filters of a cluster: the object behind ``NamedFiltersApi``."""

    def __init__(
        self,
        documents: Documents,
        topics: TopicRegistry,
        registry: GroupRegistry,
        looking: Callable[[], AbstractContextManager[int]],
        *,
        check: Callable[[Subscription], None],
        wall_ms: Callable[[], int],
    ) -> None:
        """Load the filters from *documents*; those of topics that are gone count as none.

        *looking* guards a look at the groups in the *registry*, and yields their time. *check*
        raises if the node refuses a filter.
        """
        self._documents = documents
        self._topics = topics
        self._registry = registry
        self._looking = looking
        self._check = check
        self._wall_ms = wall_ms
        self._changing = threading.Lock()  # held during a save; taken before the coordinator's
        self.closed: str | None = None
        """Why there are no named filters; None if they are there."""
        self._book = self._load()

    def _load(self) -> FilterBook:
        try:
            book = self._documents.load(_NAME, parse_book) or FilterBook()
        except StoreError as error:
            self.closed = f"named filters are closed: {error}"
            return FilterBook()
        return book.kept(self._ids())

    def save(
        self, topic: str, name: str, subscription: Subscription, note: str = "", who: str = ""
    ) -> SavedFilter:
        if not isinstance(subscription, Subscription):
            raise ConfigError(
                f"the filter is {subscription!r:.60}; make one with rr.Subscription.tags('pay'), "
                "rr.Subscription.sql('amount > 100') or rr.Subscription.where(…)"
            )
        self._check(subscription)
        with self._changing:
            before = self._of(topic)
            after = before.with_saved(
                name, subscription, note, created_ms=self._wall_ms(), created_by=who
            )
            if after is not before:
                self._save(self._book.with_topic(after))
        return SavedFilter(after.get(FilterName(name)), after is not before)

    def all(self, topic: str) -> list[NamedFilter]:
        return self._of(topic).latest()

    def versions(self, topic: str, name: str) -> list[NamedFilter]:
        return [*self._of(topic).versions(name)]

    def get(self, topic: str, name: FilterName) -> NamedFilter:
        return self._of(topic).get(name)

    def uses(self, topic: str) -> list[FilterUse]:
        self._topics.catalog.get(topic)
        return [
            FilterUse(group, name.name, name.version or 0, members, is_coming)
            for group, members, subscription, is_coming in self._readers(topic)
            if (name := _name_of(subscription)) is not None
        ]

    def for_group(self, group: str, topic: str, name: FilterName) -> GroupFilter:
        latest = self.get(topic, FilterName(name.name)).subscription
        chosen = latest if name.version is None else self.get(topic, name).subscription
        with self._looking() as now_ms:
            read = self._registry.subscriptions.find(group, topic)
            is_kept = self._members(group, topic, now_ms) > 0
            plan = self._registry.changes.get(group, topic)
            if plan is not None:
                # Who joins during a change reads as its plan says, also as the only member.
                read, is_kept = plan.new if plan.is_switching else plan.old, True
        if read is None or not name.is_of(read.named) or read == chosen:
            return GroupFilter(chosen, latest.named)
        if name.version is None and is_kept:
            return GroupFilter(read, latest.named)
        return GroupFilter(chosen, latest.named, "" if is_kept else read.named)

    def remove(self, topic: str, name: str, *, force: bool = False) -> list[FilterUse]:
        with self._changing:
            left = self._of(topic).without(name)
            uses = [each for each in self.uses(topic) if each.name == name]
            if uses and not force:
                raise ConfigError(_in_use(topic, name, uses))
            self._save(self._book.with_topic(left))
        return uses

    def keep_topics(self) -> None:
        """Remove the filters of topics that were deleted; on disk it may wait for the next save."""
        with self._changing:
            kept = self._book.kept(self._ids())
            if kept is self._book:  # so it is while they are closed
                return
            # In memory at once: if this save fails, the next one has it, too.
            self._book = kept
            try:
                self._save(kept)
            except (OSError, RegisterUnavailableError) as error:
                _LOG.warning("filters of deleted topics are removed by the next save: %s", error)

    def _of(self, topic: str) -> TopicFilters:
        config = self._topics.catalog.get(topic)
        if self.closed is not None:
            raise StoreError(self.closed)
        return self._book.of(topic, config.topic_id)

    def _ids(self) -> Mapping[str, str]:
        return {name: topic.topic_id for name, topic in self._topics.catalog.topics.items()}

    def _readers(self, topic: str) -> list[tuple[str, int, Subscription, bool]]:
        """Return the groups of a topic: members, filter, and whether they only change to that."""
        found = []
        with self._looking() as now_ms:
            for group, read, subscription in self._registry.subscriptions:
                if read == topic:
                    members = self._members(group, topic, now_ms)
                    found.append((group, members, subscription, False))
                    plan = self._registry.changes.get(group, topic)
                    if plan is not None:
                        found.append((group, members, plan.new, True))
        return found

    def _members(self, group: str, topic: str, now_ms: int) -> int:
        return len(self._registry.memberships.living(group, topic, now_ms).roster.members)

    def _save(self, book: FilterBook) -> None:
        self._documents.save(_NAME, book_json(book))
        self._book = book


def _name_of(subscription: Subscription) -> FilterName | None:
    return FilterName.parse(subscription.named) if subscription.named else None


def _in_use(topic: str, name: str, uses: list[FilterUse]) -> str:
    shown = [f"{each.group} ({each.name}@{each.version})" for each in uses[:_USES_SHOWN]]
    more = f" and {len(uses) - _USES_SHOWN} more" if len(uses) > _USES_SHOWN else ""
    return (
        f"filter {name!r} of topic {topic!r} is used by groups {', '.join(shown)}{more}: members "
        "that ask for it by name could not start again; give them another filter (rocketray groups "
        "migrate), delete the groups, or remove it with --force: they keep the filter that they have"
    )
