from __future__ import annotations

import pytest

from rocketray.filters.subscription import parse
from rocketray.filters.tag import matches_code, matches_exactly
from rocketray.hashing import tags_code


@pytest.mark.parametrize(
    ("sub", "tags", "broker", "consumer"),
    [
        ("*", None, True, True),
        ("*", "any", True, True),
        ("Aa", "Aa", True, True),
        ("Aa", "BB", True, False),  # one hash, two texts
        ("Aa || BB", "BB", True, True),
        ("Aa", "aa", False, False),
        ("Aa", None, False, False),
        ("Aa", "", False, False),
        ("TagHello", "TagHello", True, True),  # a negative code
        ("f5a5a608", None, True, False),  # a tag that hashes to 0, as no tag does
        ("A || B", "A||B", False, False),
        (" || ", "A", False, True),  # the broker lets nothing through, the consumer does not look
        (" * ", "*", True, True),
        (" * ", "A", False, False),
    ],
)
def test_broker_and_consumer(sub: str, tags: str | None, broker: bool, consumer: bool) -> None:
    data = parse(sub)
    assert matches_code(data, tags_code(tags)) is broker
    assert matches_exactly(data, tags) is consumer


def test_a_code_that_could_not_be_read_passes() -> None:
    assert matches_code(parse("A"), None)


def test_only_the_low_32_bits_of_a_code_count() -> None:
    data = parse("TagHello")
    assert matches_code(data, (1 << 40) | (tags_code("TagHello") & 0xFFFFFFFF))
    assert not matches_code(data, 1_700_000_000_000)
