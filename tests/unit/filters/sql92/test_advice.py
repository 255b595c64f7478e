"""Each surprise is named, and what is plain is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from support.models.expressions import trees

from rocketray.filters.sql92 import parse, to_sql
from rocketray.filters.sql92.advice import AdviceCode, Sample, advise
from rocketray.filters.sql92.nodes import Expression, is_boolean

RECENT = Sample(
    4,
    frozenset({"amount", "region", "TAGS"}),
    {"amount": ["5", "5.5", None, "7"], "region": ["eu", "us", "eu", "eu"]},
)


@pytest.mark.parametrize(
    "sql",
    [
        "a > 5",
        "a = 'x' OR a = 'y'",
        "amount BETWEEN 100 AND 500 AND region IN ('eu', 'us')",
        "TAGS = 'pay' AND a > 5.5",
        "NOT (a > 5)",
        "a <> 'x' OR a IS NULL",
        "a IS NOT NULL AND NOT (a CONTAINS 'x')",
        "a = TRUE",
        "a > 5 OR a < 3",
    ],
)
def test_what_is_plain_is_left_alone(sql: str) -> None:
    assert advise(parse(sql)) == []


@pytest.mark.parametrize(
    ("sql", "codes", "says"),
    [
        ("1 = 1", ["always-true"], "1 = 1 is true of every message"),
        ("a = 'x' OR 1 = 1", ["always-true"], "1 = 1 is true"),
        ("a IS NULL OR a IS NOT NULL", ["always-true"], ""),
        ("a > 5 AND a < 3", ["never-true"], "exclude each other"),
        ("a BETWEEN -1 AND -5", ["never-true"], "a >= -1 AND a <= -5"),
        ("a = 'x' AND b > 1 AND a = 'y'", ["never-true"], "a = 'x' AND a = 'y' can"),
        ("b = 'x' OR a > 5 AND a < 6", ["never-true"], "a > 5 AND a < 6"),
        ("5 = TRUE", ["never-true"], "matches no message"),
        ("a IN ('x', 'y', 'x')", ["repeated"], "lists 'x' more than once"),
        ("a = 'x' AND b = 'y' AND a = 'x'", ["repeated"], "lists a = 'x'"),
        ("a > 5 OR a = 'many'", ["type-clash"], "a number in a > 5 and a string in a = 'many'"),
        ("a > b", ["numbers-only"], "a or b is not a number"),
        ("NOT (b = 'x') = TRUE", ["not-binds-tight"], "write NOT (b = 'x' = TRUE)"),
        ("NOT a = 5", ["not-binds-tight", "bare-property"], "write NOT (a = 5)"),
        ("a <> 'x'", ["absent-no-match"], "add OR a IS NULL"),
        ("a NOT IN ('x')", ["absent-no-match"], "a message without a"),
        ("a NOT CONTAINS 'x'", ["absent-no-match"], "NOT (a CONTAINS …) does"),
        ("NOT (a CONTAINS 'x')", ["absent-matches"], "a NOT CONTAINS … does not"),
        ("b = 'x' AND a", ["bare-property"], "write a = TRUE"),
        ("TAGS = 'pay || order'", ["one-tag"], "write TAGS IN ('pay', 'order')"),
        ("TAGS IN ('pay,order', 'x')", ["one-tag"], "write TAGS IN ('pay', 'order', 'x')"),
        ("a > -b", ["minus-property"], "compare b itself"),
        ("a CONTAINS ''", ["empty-text"], "nor is its NOT form"),
        ("tags = 'pay'", ["reserved-case"], "is TAGS"),
    ],
)
def test_a_surprise_is_named(sql: str, codes: list[str], says: str) -> None:
    found = advise(parse(sql))
    assert [each.code.value for each in found] == codes
    assert says in "\n".join(f"{each.subject} {each.sentence}" for each in found)


@pytest.mark.parametrize(
    ("sql", "codes", "says"),
    [
        ("amount > 5", ["will-fail"], "amount > 5 fails on 1 of 4 recent messages"),
        ("amount > 5", ["will-fail"], "write the number with a point"),
        ("amount > 5.0", [], ""),
        ("region = 5.0", ["will-fail"], "'eu' is not a double"),
        ("amuont = '5'", ["never-seen"], "did you mean amount?"),
        ("nothing_like_it = '5'", ["never-seen"], "in none of 4 recent messages"),
        ("region <> 'eu'", [], ""),
        ("amount <> 'x'", ["absent-no-match"], ""),
    ],
)
def test_recent_messages_are_looked_at(sql: str, codes: list[str], says: str) -> None:
    found = advise(parse(sql), RECENT)
    assert [each.code.value for each in found] == codes
    assert says in "\n".join(f"{each.subject} {each.sentence}" for each in found)


def test_in_the_dialect_rocketray_only_what_is_no_number_fails() -> None:
    for sql in ("amount > 5", "amount IN (5, 7)", "5 < amount"):
        assert advise(parse(sql, "rocketray"), RECENT) == []
    for sql in ("region > 5", "5 <> region"):
        found = [each for each in advise(parse(sql, "rocketray"), RECENT) if each.code.leaves_out]
        assert [each.code.value for each in found] == ["will-fail"]
        assert "'eu' is not a number" in found[0].sentence
        assert "write" not in found[0].sentence
    [theirs] = advise(parse("amount > 5"), RECENT)
    assert "or use the dialect rocketray" in theirs.sentence


def test_an_empty_topic_proves_nothing() -> None:
    assert advise(parse("a > 5"), Sample(0)) == []


@settings(max_examples=200)
@given(trees().filter(is_boolean))
def test_any_expression_gets_its_advice(tree: Expression) -> None:
    for each in advise(tree, RECENT):
        assert each.subject
        assert each.sentence
        if each.code is AdviceCode.NEVER_TRUE:
            assert is_boolean(parse(each.subject, "rocketray")), to_sql(tree)
