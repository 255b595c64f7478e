from __future__ import annotations

import pytest
from support.harness.turns import Figure, Result, Turn


def result(ours: list[float], theirs: list[float], *, is_less_better: bool = False) -> Result:
    mine, others = ([Turn(value, 1.5, 0.2) for value in values] for values in (ours, theirs))
    return Result(Figure("how many?", "k/s", is_less_better), mine, others)


@pytest.mark.parametrize(
    ("ours", "theirs", "is_less_better", "ratio", "word"),
    [
        ([2.0, 30.0, 8.0], [1.0, 10.0, 2.0], False, 3.0, "ahead"),
        ([1.0, 10.0, 2.0], [2.0, 30.0, 8.0], True, 3.0, "ahead"),
        ([2.0, 30.0, 8.0], [1.0, 10.0, 2.0], True, 1 / 3, "behind"),
        ([1.09], [1.0], False, 1.09, "level"),
        ([1.0], [1.09], False, 1 / 1.09, "level"),
        ([1.0], [1.11], False, 1 / 1.11, "behind"),
    ],
)
def test_a_ratio_is_that_of_adjacent_turns_and_has_a_word(
    ours: list[float], theirs: list[float], is_less_better: bool, ratio: float, word: str
) -> None:
    found = result(ours, theirs, is_less_better=is_less_better)
    assert found.ratio == pytest.approx(ratio)
    assert found.word == word


def test_a_row_has_medians_and_says_what_was_thrown_away() -> None:
    found = result([2.0, 1400.0, 50.0], [1.0, 2.0, 3.0])
    found.disturbed = 2
    assert found.row() == (
        "| how many? | 2.00 k/s (1.5 µs) | 50.0 k/s (1.5 µs) | 16.67 | ahead "
        "| 3, 2 thrown away | 0.2 cores |"
    )
    assert result([], []).row() == "| how many? | | | | disturbed | 0, 0 thrown away | |"
