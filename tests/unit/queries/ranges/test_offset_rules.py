from __future__ import annotations

import pytest

from rocketray.broker.fetching.read_plan import Bounds, check_loss
from rocketray.errors import ConfigError, OffsetOutOfRangeError, StoreError
from rocketray.queries.ranges.offset_rules import (
    EARLIEST,
    LATEST,
    OffsetRule,
    offsets_from_json,
    offsets_to_json,
    parse_rule,
    resolve_rule,
)
from rocketray.queries.ranges.topic_choice import assigned, named

BOUNDS = {("T", 0): Bounds(5, 20), ("T", 1): Bounds(0, 0), ("U", 0): Bounds(0, 7)}


def test_offsets_survive_the_form_of_the_checkpoint() -> None:
    offsets = {("U", 0): 7, ("T", 10): 1, ("T", 2): 2**62}

    assert offsets_to_json(offsets) == {"T": {"2": 2**62, "10": 1}, "U": {"0": 7}}
    assert offsets_from_json(offsets_to_json(offsets), named("T,U")) == offsets


def test_a_checkpoint_of_other_topics_is_refused() -> None:
    with pytest.raises(ConfigError, match="belongs to a query that also reads Old"):
        offsets_from_json({"T": {"0": 1}, "Old": {"0": 1}}, named("T"))


def test_a_checkpoint_of_a_queue_that_is_not_assigned_any_more_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'also reads queue 1 of T, .*assign = \{"T": '):
        offsets_from_json({"T": {"0": 1, "1": 1}}, assigned('{"T": [0]}'))


@pytest.mark.parametrize(
    "value",
    [[], 3, {"T": 3}, {"T": {"x": 1}}, {"T": {"0": -1}}, {"T": {"0": 1.0}}, {"T": {"0": True}}],
)
def test_a_damaged_checkpoint_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"the checkpoint's offset.*begin a new one"):
        offsets_from_json(value, named("T"))


@pytest.mark.proves("spark", "The option `startingOffsets`")
def test_words_and_numbers_name_the_ends_of_a_queue() -> None:
    assert parse_rule(" Earliest ", "o", others=LATEST) == OffsetRule(EARLIEST, {})
    assert parse_rule("latest", "o", others=EARLIEST) == OffsetRule(LATEST, {})

    rule = parse_rule('{"T": {"0": -1}, "U": {"0": 3}}', "o", others=EARLIEST)
    assert resolve_rule(rule, BOUNDS, "o") == {("T", 0): 20, ("T", 1): 0, ("U", 0): 3}

    rule = parse_rule('{"T": {"0": -2}}', "o", others=LATEST)
    assert resolve_rule(rule, BOUNDS, "o") == {("T", 0): 5, ("T", 1): 0, ("U", 0): 7}


@pytest.mark.parametrize("text", ["newest", "", "[1]", '{"T": {"0": -3}}', '{"T": {"0": "1"}}'])
def test_what_is_no_rule_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        parse_rule(text, "startingOffsets", others=EARLIEST)


@pytest.mark.parametrize("offset", [4, 21])
def test_an_offset_that_the_queue_does_not_hold_is_refused(offset: int) -> None:
    rule = OffsetRule(EARLIEST, {("T", 0): offset})

    with pytest.raises(
        OffsetOutOfRangeError, match=f"^endingOffsets: topic 'T' queue 0: offset {offset}"
    ):
        resolve_rule(rule, BOUNDS, "endingOffsets")


def test_a_queue_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="names queue 9 of topic 'T'"):
        resolve_rule(OffsetRule(EARLIEST, {("T", 9): 0}), BOUNDS, "startingOffsets")


def test_a_loss_names_topic_queue_offsets_and_the_way_out() -> None:
    said: list[str] = []
    with pytest.raises(StoreError, match="failOnDataLoss=false") as deleted:
        check_loss(("T", 3), 2, Bounds(5, 9), fail=True, warn=said.append)
    check_loss(("T", 3), 2, Bounds(5, 9), fail=False, warn=said.append)

    assert "topic 'T' queue 3: messages 2 to 4 were deleted" in str(deleted.value)
    assert said == [str(deleted.value)]
