"""The named filters of all topics: the document ``namedFilters``, as plain values.

    {"version": 1, "topics": {TOPIC: {"topicId": ID, "filters": {NAME: {
        "lastVersion": 2,
        "versions": [{"version": 1, "filter": {…}, "note": …, "createdMs": …, "createdBy": …}, …]
    }}}}}

Limits: 1,000 names a topic, 1,000 versions a name, notes of 1,000 characters; an expression has the
limit of every filter, and the document that of every state file.

Invariants
  1. A version never changes, and its number is not given again: not after its filter was removed,
     of which ``lastVersion`` remains. So ``large@2`` means one filter as long as its topic exists.
  2. The filters of a topic end with it: those of another topic of the same name, by its id, count
     as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import json_fields, read_value
from rocketray.base.meant import meant
from rocketray.base.names import check_case_clash
from rocketray.errors import ConfigError
from rocketray.filters.filter_name import FilterName, check_filter_name
from rocketray.filters.subscription import Subscription

NAMES_MAX = 1000
"""Names of filters a topic, those of removed filters too."""
VERSIONS_MAX = 1000
NOTE_MAX_CHARS = 1000
"""All limits together allow more than a document may have, whose own limit then counts."""
_AUTHOR_MAX_CHARS = 200
_FORM = FileForm("config/namedFilters.json")


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """One version of a named filter of a topic.

    ``subscription`` has its name and version in ``named``. ``created_ms`` counts milliseconds since
    1970, by the node's clock; ``created_by`` is who saved it, for people.
    """

    topic: str
    name: str
    version: int
    subscription: Subscription = field(metadata={"json": "filter"})
    note: str = ""
    created_ms: int = 0
    created_by: str = ""

    @property
    def text(self) -> str:
        """The filter in words, without its name."""
        return str(replace(self.subscription, named=""))

    def to_json(self) -> dict[str, Any]:
        """Return what is saved of it, and for programs its topic and name as well."""
        return json_fields(self)


@dataclass(frozen=True, slots=True)
class _History:
    """The versions of one name, oldest first; none of a filter that was removed."""

    last_version: int = 0
    versions: tuple[NamedFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicFilters:
    """The named filters of one topic, and the names that were used."""

    topic: str
    topic_id: str
    histories: Mapping[str, _History] = field(default_factory=lambda: MappingProxyType({}))

    def latest(self) -> list[NamedFilter]:
        """Return the latest version of each filter, by name."""
        found = sorted(self.histories.items())
        return [history.versions[-1] for _, history in found if history.versions]

    def versions(self, name: str) -> tuple[NamedFilter, ...]:
        """Return all versions of a filter, oldest first.

        Raises:
            ConfigError: there is no such filter.
        """
        check_filter_name(name)
        history = self.histories.get(name)
        if history is not None and history.versions:
            return history.versions
        names = [latest.name for latest in self.latest()]
        near = meant(name, names)
        hint = f"save it with: rocketray filter save {self.topic} {name}"
        if names:
            hint = (
                f"did you mean {near[0]!r}?" if near else f"see: rocketray filter list {self.topic}"
            )
        was = "" if history is None else ": it was removed"
        raise ConfigError(f"topic {self.topic!r} has no filter {name!r}{was}; {hint}")

    def get(self, name: FilterName) -> NamedFilter:
        """Return a version of a filter, the latest one if *name* has none.

        Raises:
            ConfigError: there is no such filter, or no such version.
        """
        if not isinstance(name, FilterName):
            raise ConfigError(
                f"the filter is {name!r:.60}; name it as rr.FilterName('large'), or as "
                "rr.FilterName('large', 2) for that version"
            )
        versions = self.versions(name.name)
        if name.version is None:
            return versions[-1]
        for saved in versions:
            if saved.version == name.version:
                return saved
        first, last = versions[0].version, versions[-1].version
        existing = f"version {last}" if first == last else f"versions {first} to {last}"
        raise ConfigError(
            f"filter {name.name!r} of topic {self.topic!r} has {existing}, not {name.version}; "
            f"see: rocketray filter show {self.topic} {name.name}"
        )

    def with_saved(
        self, name: str, subscription: Subscription, note: str, *, created_ms: int, created_by: str
    ) -> TopicFilters:
        """Return the filters with *subscription* as the latest version of *name*.

        They are the same if it is that already.

        Raises:
            ConfigError: the name or the note is invalid, or there is no room.
        """
        check_filter_name(name)
        _check_text("note", note, NOTE_MAX_CHARS)
        _check_text("name of its author", created_by, _AUTHOR_MAX_CHARS)
        history = self.histories.get(name)
        if history is None:
            check_case_clash("filter", name, self.histories)
            if len(self.histories) >= NAMES_MAX:
                raise ConfigError(
                    f"topic {self.topic!r} has {NAMES_MAX} names of filters, those of removed ones "
                    "counted, which is the most; save a version of one of them"
                )
            history = _History()
        if history.versions and history.versions[-1].subscription == subscription:
            return self
        if len(history.versions) >= VERSIONS_MAX:
            raise ConfigError(
                f"filter {name!r} of topic {self.topic!r} has {VERSIONS_MAX} versions, which is the "
                "most; save it under another name"
            )
        version = history.last_version + 1
        named = replace(subscription, named=str(FilterName(name, version)))
        new = NamedFilter(self.topic, name, version, named, note, created_ms, created_by)
        return self._with(name, _History(version, (*history.versions, new)))

    def without(self, name: str) -> TopicFilters:
        """Return the filters without one; raise :class:`ConfigError` if there is none."""
        self.versions(name)
        return self._with(name, replace(self.histories[name], versions=()))

    def _with(self, name: str, history: _History) -> TopicFilters:
        return replace(self, histories={**self.histories, name: history})


@dataclass(frozen=True, slots=True)
class FilterBook:
    """The named filters of all topics; a change returns a new book, which its owner saves."""

    topics: Mapping[str, TopicFilters] = field(default_factory=dict)

    def of(self, topic: str, topic_id: str) -> TopicFilters:
        """Return the filters of a topic, which has that id."""
        found = self.topics.get(topic)
        if found is None or found.topic_id != topic_id:
            return TopicFilters(topic, topic_id)
        return found

    def with_topic(self, filters: TopicFilters) -> FilterBook:
        return replace(self, topics={**self.topics, filters.topic: filters})

    def kept(self, ids: Mapping[str, str]) -> FilterBook:
        """Return the book of the topics in *ids*, which has their ids; itself if that is all."""
        gone = {name for name, filters in self.topics.items() if ids.get(name) != filters.topic_id}
        if not gone:
            return self
        kept = {name: filters for name, filters in self.topics.items() if name not in gone}
        return replace(self, topics=kept)


def parse_book(value: dict[str, Any]) -> FilterBook:
    """Return the book of :func:`book_json`.

    Raises:
        ConfigError: it is none. UnknownVersionError: it is of a later version.
    """
    value = _FORM.content(value)
    try:
        topics = {
            topic: TopicFilters(
                topic,
                str(entry["topicId"]),
                {
                    check_filter_name(name): _history(topic, name, history)
                    for name, history in entry["filters"].items()
                },
            )
            for topic, entry in value["topics"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"namedFilters.json has an entry that is no filter: {error!r}") from None
    return FilterBook(topics)


def book_json(book: FilterBook) -> dict[str, Any]:
    """Return a book as JSON, for :func:`parse_book`."""
    topics = {
        topic: {
            "topicId": filters.topic_id,
            "filters": {
                name: {
                    "lastVersion": history.last_version,
                    "versions": [_entry(version) for version in history.versions],
                }
                for name, history in filters.histories.items()
            },
        }
        for topic, filters in book.topics.items()
    }
    return _FORM.of({"topics": topics})


def _entry(one: NamedFilter) -> dict[str, Any]:
    entry = replace(one, subscription=replace(one.subscription, named="")).to_json()
    del entry["topic"], entry["name"]
    return entry


def _history(topic: str, name: str, value: Mapping[str, Any]) -> _History:
    versions = []
    for each in value["versions"]:
        found = read_value(NamedFilter, {**each, "topic": topic, "name": name})
        named = replace(found.subscription, named=str(FilterName(name, found.version)))
        versions.append(replace(found, subscription=named))
    return _History(int(value["lastVersion"]), tuple(versions))


def _check_text(what: str, text: str, most: int) -> None:
    if not isinstance(text, str) or len(text) > most or not text.isprintable():
        raise ConfigError(
            f"the {what} of a filter is {text!r:.60}; give at most {most} printable characters"
        )
