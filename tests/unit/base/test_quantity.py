from __future__ import annotations

import pytest

from rocketray.base.quantity import agreed, counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "queue", "0 queues"),
        (1, "dead letter", "1 dead letter"),
        (1_200, "key", "1,200 keys"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "process", "2 processes"),
    ],
)
def test_a_number_has_its_noun(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_a_verb_agrees_with_the_number_before_it() -> None:
    assert [agreed(1, verb) for verb in ("are", "were", "have", "do", "run")] == [
        *("is", "was", "has", "does", "runs")
    ]
    assert [agreed(count, "are") for count in (0, 2)] == ["are", "are"]
