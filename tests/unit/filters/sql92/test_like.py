"""LIKE takes one step a character, and agrees with a matcher made of the definition."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.filters.sql92.like import BYTE_TOKENS_MAX, compile_like, like_table


def by_definition(pattern: str, text: str) -> bool:
    @cache
    def matches(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(text)
        if pattern[i] == "%":
            return matches(i + 1, j) or (j < len(text) and matches(i, j + 1))
        return j < len(text) and pattern[i] in ("_", text[j]) and matches(i + 1, j + 1)

    return matches(0, 0)


@given(st.text("ab%_", max_size=12), st.text("abc", max_size=12))
def test_it_agrees_with_the_definition(pattern: str, text: str) -> None:
    assert compile_like(pattern, None).matches(text) == by_definition(pattern, text)


@pytest.mark.parametrize(
    "pattern", ["%" * 2000, "%a" * 1000 + "b", "%_" * 1000, "a%" * 1000 + "b", "_" * 4000, "%a%a%b"]
)
def test_no_pattern_takes_more_than_one_step_a_character(pattern: str) -> None:
    steps = 0

    def counted() -> Iterator[str]:
        nonlocal steps
        for character in "a" * 5000:
            steps += 1
            yield character

    compile_like(pattern, None).matches(counted())
    assert steps <= 5000


def test_a_text_that_cannot_match_any_more_is_left() -> None:
    text = iter("ba" * 100)
    assert not compile_like("ab%", None).matches(text)
    assert len(list(text)) == 199


def test_a_table_holds_what_fits_into_one_number() -> None:
    longest = like_table("x" * BYTE_TOKENS_MAX, None)
    assert longest is not None
    assert len(longest) == 2 + 256
    assert max(longest) < 2**63
    assert like_table("x" * (BYTE_TOKENS_MAX + 1), None) is None
    assert like_table("中" * 21, None) is None
