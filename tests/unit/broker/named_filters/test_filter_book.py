"""The book of named filters, beside a plain record of what was saved."""

from __future__ import annotations

import json
import random

import pytest

from rocketray.broker.named_filters import filter_book
from rocketray.broker.named_filters.filter_book import (
    FilterBook,
    TopicFilters,
    book_json,
    parse_book,
)
from rocketray.errors import ConfigError, InvalidNameError, StoreVersionError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription

ID = "a" * 32


def saved(filters: TopicFilters, name: str, sql: str, note: str = "") -> TopicFilters:
    return filters.with_saved(
        name, Subscription.sql(sql), note, created_ms=7, created_by="ann on host"
    )


def test_a_version_keeps_its_filter_and_its_number(seed: int) -> None:
    """Random saves and removals, beside a dictionary of all that was ever saved."""
    draw, book = random.Random(seed), FilterBook()
    ever: dict[str, str] = {}
    last: dict[str, int] = {}
    there: dict[str, list[int]] = {}
    for step in range(300):
        filters, name = book.of("Trade", ID), draw.choice("abc")
        if draw.random() < 0.1:
            if there.get(name):
                book = book.with_topic(filters.without(name))
                there[name] = []
            else:
                with pytest.raises(ConfigError, match="has no filter"):
                    filters.without(name)
            continue
        is_same = bool(there.get(name)) and draw.random() < 0.2
        sql = ever[f"{name}@{last[name]}"] if is_same else f"a > {step}"
        book = book.with_topic(saved(filters, name, sql))
        if not is_same:
            last[name] = last.get(name, 0) + 1
            assert f"{name}@{last[name]}" not in ever
            ever[f"{name}@{last[name]}"] = sql
            there.setdefault(name, []).append(last[name])
        book = parse_book(json.loads(json.dumps(book_json(book))))
        filters = book.of("Trade", ID)
        for each, versions in there.items():
            found = [] if not versions else filters.versions(each)
            assert [one.version for one in found] == versions
            for one in found:
                named = f"{each}@{one.version}"
                assert (one.subscription.expression, one.subscription.named) == (ever[named], named)
        latest = {one.name: one.version for one in filters.latest()}
        assert latest == {each: versions[-1] for each, versions in there.items() if versions}


def test_a_version_is_found_by_its_name() -> None:
    filters = saved(saved(TopicFilters("Trade", ID), "large", "a > 1", "first"), "large", "a > 2")
    assert filters.get(FilterName("large")).version == 2
    assert filters.get(FilterName("large", 1)).note == "first"
    with pytest.raises(ConfigError, match=r"has versions 1 to 2, not 3; see: rocketray filter sh"):
        filters.get(FilterName("large", 3))
    with pytest.raises(ConfigError, match="did you mean 'large'"):
        filters.get(FilterName("larg"))
    with pytest.raises(ConfigError, match="see: rocketray filter list Trade"):
        filters.get(FilterName("other"))
    with pytest.raises(
        ConfigError, match="it was removed; save it with: rocketray filter save Trade large"
    ):
        filters.without("large").get(FilterName("large"))


def test_another_note_makes_no_version() -> None:
    filters = saved(TopicFilters("Trade", ID), "large", "a > 1", "first")
    assert saved(filters, "large", "a > 1", "second") is filters


def test_the_filters_of_a_deleted_topic_count_as_none() -> None:
    book = FilterBook().with_topic(saved(TopicFilters("Trade", ID), "large", "a > 1"))
    assert book.of("Trade", "b" * 32).latest() == []
    assert book.kept({"Trade": ID}) is book
    assert book.kept({"Trade": "b" * 32}) == book.kept({}) == FilterBook()


def test_names_and_versions_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_book, "NAMES_MAX", 2)
    monkeypatch.setattr(filter_book, "VERSIONS_MAX", 2)
    filters = saved(saved(TopicFilters("Trade", ID), "large", "a > 1"), "large", "a > 2")
    with pytest.raises(ConfigError, match="has 2 versions, which is the most"):
        saved(filters, "large", "a > 3")
    filters = saved(filters, "small", "a < 1")
    with pytest.raises(ConfigError, match="has 2 names of filters"):
        saved(filters.without("small"), "other", "a = 1")
    with pytest.raises(InvalidNameError, match="differs from the existing 'large' only in case"):
        saved(filters, "Large", "a = 1")
    with pytest.raises(ConfigError, match=r"the note of a filter is .*; give at most 1000"):
        saved(filters, "small", "a = 1", "a\nb")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"topics": []},
        {"topics": {"Trade": {"topicId": ID, "filters": {"a b": {}}}}},
        {"topics": {"Trade": {"topicId": ID, "filters": {"a": {"versions": []}}}}},
        {
            "topics": {
                "Trade": {"topicId": ID, "filters": {"a": {"lastVersion": 1, "versions": [1]}}}
            }
        },
    ],
)
def test_another_document_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no filter"):
        parse_book({"version": 1, **value})
    with pytest.raises(StoreVersionError, match="version is 2"):
        parse_book({"version": 2, **value})
