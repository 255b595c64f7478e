"""Topics are chosen by name, by a pattern, or queue by queue."""

from __future__ import annotations

import pytest

from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, InvalidNameError, TopicNotFoundError
from rocketray.queries.ranges.topic_choice import TopicChoice, assigned, matching, named

KNOWN = (
    TopicCatalog()
    .with_topic("Trade", 2)
    .with_topic("Trades_eu", 1)
    .with_topic("Order", 3)
    .with_topic("%RETRY%Trade", 1)
    .topics
)


def keys(choice: TopicChoice) -> list[tuple[str, int]]:
    return choice.keys(choice.among(KNOWN, "here"))


def test_named_topics_are_read_whole() -> None:
    assert keys(named("Trade, Trades_eu")) == [("Trade", 0), ("Trade", 1), ("Trades_eu", 0)]
    assert keys(named("%RETRY%Trade")) == [("%RETRY%Trade", 0)]
    with pytest.raises(TopicNotFoundError, match="'Trades' does not exist in here; did you mean "):
        named("Trades").among(KNOWN, "here")


@pytest.mark.proves("spark", "The options `topicPattern` and `assign`")
def test_a_pattern_matches_whole_names_and_none_of_the_nodes_own() -> None:
    assert keys(matching("Trade")) == [("Trade", 0), ("Trade", 1)]
    assert {topic for topic, _ in keys(matching(".*Trade.*"))} == {"Trade", "Trades_eu"}
    assert keys(matching("X.*")) == []


@pytest.mark.proves("spark", "The options `topicPattern` and `assign`")
def test_queues_are_assigned_one_by_one() -> None:
    choice = assigned('{"Order": [2, 0, 2], "Trade": [1]}')

    assert keys(choice) == [("Order", 0), ("Order", 2), ("Trade", 1)]
    with pytest.raises(ConfigError, match="'Trade' has the queues 0 to 1, not 2"):
        assigned('{"Trade": [2]}').among(KNOWN, "here")


def test_what_a_query_does_not_read_is_named() -> None:
    read = [("Trade", 0), ("Trade", 1), ("Order", 0)]

    assert named("Trade,Order").strangers(read) == []
    assert named("Trade").strangers(read) == ["Order"]
    assert matching("Tr.*").strangers(read) == ["Order"]
    assert assigned('{"Trade": [1]}').strangers(read) == ["Order", "queue 0 of Trade"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"T": 0}', '{"T": []}', '{"T": [-1]}', '{"T": ["0"]}', '{"T": [true]}'],
)
def test_what_assigns_no_queues_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="assign"):
        assigned(text)


def test_there_are_limits() -> None:
    many = {f"T{number}": None for number in range(1001)}
    with pytest.raises(ConfigError, match="topic names 1001 topics; one query reads at most 1000"):
        named(",".join(many))
    with pytest.raises(ConfigError, match="topicPattern has 1001 characters"):
        matching("x" * 1001)
    with pytest.raises(ConfigError, match=r"'\(' is not a regular expression: .* like 'Trade"):
        matching("(")
    with pytest.raises(InvalidNameError):
        assigned('{"a b": [0]}')
