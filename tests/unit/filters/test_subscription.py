from __future__ import annotations

import json
import pickle

import pytest
from support.predicates import body_is_short
from support.rocketmq.golden import golden_rows

from rocketray.errors import ConfigError, FilterError, FilterSyntaxError, PredicateError
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.sql92.dialect import current_rules
from rocketray.filters.subscription import (
    EXPRESSION_MAX_CHARS,
    Subscription,
    describe_difference,
    matches_code,
    matches_exactly,
    parse,
)
from rocketray.hashing import tags_code


@pytest.mark.parametrize("row", golden_rows("subscription"), ids=lambda row: repr(row["sub"]))
def test_tag_expressions_are_read_as_rocketmq_reads_them(row: dict[str, object]) -> None:
    sub = row["sub"]
    assert sub is None or isinstance(sub, str)
    if "error" in row:
        with pytest.raises(FilterSyntaxError, match="needs a tag"):
            parse(sub)
        return
    data = parse(sub)
    assert data.sub_string == row["subString"]
    assert sorted(data.tags_set) == row["tags"]
    assert sorted(data.code_set) == row["codes"]


@pytest.mark.parametrize("sub", ["||", "||||"])
def test_only_separators_are_an_error_with_a_caret(sub: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(sub)
    assert str(caught.value).endswith("^" * len(sub))


def test_only_blank_tags_match_nothing() -> None:
    data = parse(" || ")
    assert (data.sub_string, data.tags_set, data.code_set) == (" || ", frozenset(), frozenset())


def test_pieces_are_split_at_the_first_separator_and_trimmed_as_java_does() -> None:
    assert parse("a|||b").tags_set == {"a", "|b"}
    assert parse("\x00a\x1f||\u00a0b").tags_set == {"a", "\u00a0b"}
    assert parse("\ud800").code_set == {0xD800}


def test_a_filter_of_any_kind_is_limited_in_length() -> None:
    text = "a" * (EXPRESSION_MAX_CHARS + 1)
    for subscription in (Subscription.tags(text), Subscription.sql(text), Subscription.where(text)):
        with pytest.raises(FilterSyntaxError, match="4096"):
            subscription.check()


SUBSCRIPTIONS = [
    Subscription.tags("UA || DL"),
    Subscription.sql("a = 'x'"),
    Subscription.where("support.predicates:body_is_short"),
    Subscription.where("support.predicates:body_is_short", "skip"),
]


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS, ids=str)
def test_a_subscription_travels(subscription: Subscription) -> None:
    assert pickle.loads(pickle.dumps(subscription)) == subscription
    assert Subscription.from_json(json.loads(json.dumps(subscription.to_json()))) == subscription
    subscription.check()


def test_it_reads_as_the_argument_that_made_it() -> None:
    assert [str(each) for each in SUBSCRIPTIONS] == [
        "tags 'UA || DL'",
        "sql \"a = 'x'\"",
        "where 'support.predicates:body_is_short'",
        "where 'support.predicates:body_is_short' (on an error: skip)",
    ]


def test_a_function_becomes_its_path() -> None:
    assert Subscription.where(body_is_short) == SUBSCRIPTIONS[2]


@pytest.mark.parametrize(
    ("subscription", "error"),
    [
        (Subscription.tags("||"), FilterSyntaxError),
        (Subscription.sql("a >"), FilterSyntaxError),
        (Subscription.sql(""), FilterSyntaxError),
        (Subscription.where("support.predicates:absent"), PredicateError),
    ],
    ids=str,
)
def test_check_finds_what_cannot_be_used(
    subscription: Subscription, error: type[Exception]
) -> None:
    with pytest.raises(error):
        subscription.check()


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"expressionType": "TAG"},
        {"expressionType": "tag", "expression": "a"},
        {"expressionType": "SQL92", "expression": 5},
        {"expressionType": [], "expression": "a"},
    ],
    ids=repr,
)
def test_json_that_is_no_subscription_is_refused(value: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Subscription.from_json(value)


def test_only_a_predicate_has_a_policy_for_errors() -> None:
    for kind in ("TAG", "SQL92"):
        with pytest.raises(ConfigError, match="leave it out"):
            Subscription(kind, "a", "skip")
    with pytest.raises(ConfigError, match="not stop, skip or deliver"):
        Subscription("CLASS", "a:f", "ignore")  # type: ignore[arg-type]
    stops, skips = SUBSCRIPTIONS[2:]
    assert stops != skips, "members of one group agree on it"


def test_the_text_is_checked_without_importing() -> None:
    Subscription.where("no.such.module:f").check_text()
    for wrong in (Subscription.where("no path"), Subscription.sql("a >"), Subscription.tags("||")):
        with pytest.raises(FilterError):
            wrong.check_text()


def test_only_sql_has_a_dialect_and_it_travels_and_tells_subscriptions_apart() -> None:
    extended = Subscription.sql("a LIKE 'x%'", "rocketray")
    extended.check()
    assert Subscription.from_json(extended.to_json()) == extended
    assert extended.to_json()["dialect"] == "rocketray"
    assert extended.to_json()["dialectRules"] == 2
    assert extended == Subscription.sql("a LIKE 'x%'")
    assert str(extended) == "sql \"a LIKE 'x%'\""
    theirs = Subscription.sql("a = 1", "rocketmq")
    assert "dialect" not in theirs.to_json()
    assert theirs != Subscription.sql("a = 1")
    assert str(theirs) == "sql 'a = 1' (dialect: rocketmq)"
    first = Subscription("SQL92", "a = 1", dialect="rocketray", rules=1)
    assert str(first) == "sql 'a = 1' (dialect: rocketray, rules 1)"
    expression = MessageFilter(extended).sql
    assert expression is not None
    assert expression.names == ("a",)
    with pytest.raises(FilterSyntaxError, match='the dialect "rocketray"'):
        Subscription.sql("a LIKE 'x%'", "rocketmq").check()
    with pytest.raises(ConfigError, match="leave it out"):
        Subscription("TAG", "a", dialect="rocketray")
    with pytest.raises(ConfigError, match="give 'rocketray' or 'rocketmq'"):
        Subscription.from_json({**extended.to_json(), "dialect": "oracle"})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (Subscription.tags("a || b"), Subscription.tags("b||c"), "added: c; removed: a; kept: b"),
        (Subscription.tags("a"), Subscription.tags("*"), "added: * (all); removed: a; kept: none"),
        (
            Subscription.sql("amount > 10 AND x = 1"),
            Subscription.sql("amount > 20 AND x = 1"),
            "from character 10 on: '10 AND x = 1' before, '20 AND x = 1' now",
        ),
        (Subscription.sql("a > 1"), Subscription.sql("a > 1 OR b"), "from character 6 on"),
        (Subscription.tags("a"), Subscription.sql("a > 1"), "TAG before, SQL92 now"),
        (
            Subscription.sql("a > 1", "rocketmq"),
            Subscription.sql("a > 1", "rocketray"),
            "the same text, but dialect rocketmq before, rocketray now; ",
        ),
        (
            Subscription.where("a:f"),
            Subscription.where("a:f", "skip"),
            "on an error: stop before, skip now",
        ),
    ],
)
def test_the_difference_of_two_subscriptions_can_be_read(
    before: Subscription, after: Subscription, words: str
) -> None:
    assert words in describe_difference(before, after)


def test_dialect_and_rules_are_part_of_a_filters_identity() -> None:
    filters = [
        Subscription.tags("a > 1"),
        Subscription.sql("a > 1", "rocketmq"),
        *(
            Subscription("SQL92", "a > 1", dialect="rocketray", rules=rules)
            for rules in range(1, current_rules("rocketray") + 1)
        ),
        Subscription.sql("a > 2", "rocketmq"),
        Subscription.where("a:f"),
        Subscription.where("a:f", "skip"),
    ]
    assert len({json.dumps(each.to_json()) for each in filters}) == len(filters)
    assert len(set(filters)) == len(filters)
    for each in filters:
        assert Subscription.from_json(json.loads(json.dumps(each.to_json()))) == each
        assert pickle.loads(pickle.dumps(each)) == each


def test_sql_that_was_stored_without_a_dialect_is_rocketmqs() -> None:
    stored = {"expressionType": "SQL92", "expression": "a > 1"}
    assert Subscription.from_json(stored) == Subscription.sql("a > 1", "rocketmq")
    assert Subscription.sql("a > 1", "rocketmq").to_json() == stored
    first = Subscription.from_json({**stored, "dialect": "rocketray"})
    assert (first.dialect, first.rules) == ("rocketray", 1)


def test_rules_of_a_later_program_are_refused() -> None:
    later = {**Subscription.sql("a", "rocketray").to_json(), "dialectRules": 99}
    with pytest.raises(ConfigError, match="use the version that wrote them"):
        Subscription.from_json(later)
    for odd in (0, "1", 1.0, True):
        with pytest.raises(ConfigError, match="are not supported by this version"):
            Subscription.from_json({**later, "dialectRules": odd})


def test_a_member_of_an_earlier_release_sends_no_rules() -> None:
    def taken(*state: str) -> Subscription:
        found = Subscription.__new__(Subscription)
        found.__setstate__(list(state))  # type: ignore[attr-defined]
        return found

    assert taken("SQL92", "a > 1", "stop", "rocketmq") == Subscription.sql("a > 1", "rocketmq")
    assert taken("SQL92", "a > 1", "stop", "rocketray").rules == 1
    assert taken("TAG", "a", "stop", "rocketmq") == Subscription.tags("a")


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
