from __future__ import annotations

import pytest

from rocketray.base.names import check_case_clash, check_group, check_queue_count, check_topic
from rocketray.errors import InvalidNameError


@pytest.mark.parametrize(
    "name", ["Trade", "%RETRY%group", "a|b", "a_b-C9", "x" * 127, "%RETRY%" + "g" * 248]
)
def test_a_topic_of_rocketmqs_characters_is_taken(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("a.b", r"'\.'"),
        ("../x", "'/'"),
        ("a b", "' '"),
        ("a\n", r"'\\n'"),
        ("größe", "'ß'"),
        ("x" * 128, "128 characters; at most 127"),
        ("%RETRY%" + "g" * 249, "at most 255"),
        ("\ud800", "not allowed"),
    ],
)
def test_another_topic_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidNameError, match=reason):
        check_topic(name)


def test_a_group_has_at_most_120_characters() -> None:
    assert check_group("g" * 120) == "g" * 120
    with pytest.raises(InvalidNameError, match=r"consumer group .* at most 120"):
        check_group("g" * 121)


def test_a_topic_has_1_to_1024_queues() -> None:
    assert [check_queue_count(count) for count in (1, 1024)] == [1, 1024]
    for count in (0, -1, 1025):
        with pytest.raises(InvalidNameError, match="1 to 1024"):
            check_queue_count(count)


def test_names_that_differ_only_in_case_are_refused() -> None:
    check_case_clash("topic", "Trade", ["Trade", "Other"])
    with pytest.raises(InvalidNameError, match="'trade' differs from the existing 'Trade'"):
        check_case_clash("topic", "trade", ["Other", "Trade"])
