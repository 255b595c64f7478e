"""What holds for every expression, message and tag, whatever they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.amounts import examples
from support.models.expressions import broken_texts, messages, rules_of, trees, with_numeric

from rocketray.errors import FilterEvaluationError, FilterSyntaxError
from rocketray.filters.bloom import RocketBloomFilter
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.sql92 import SQL_MAX_CHARS, Dialect, compile_expression, parse, to_sql
from rocketray.filters.sql92.coercion import to_double, to_int32
from rocketray.filters.sql92.compiled import CompiledExpression
from rocketray.filters.sql92.nodes import (
    And,
    BooleanCast,
    Expression,
    Literal,
    Not,
    Or,
    Property,
    TextTest,
    children,
)
from rocketray.filters.subscription import Subscription
from rocketray.filters.subscription import parse as parse_tags
from rocketray.hashing import tags_code
from rocketray.message import check_tag

STEPS_A_CHARACTER = 200  # the most seen is 60, for a list of numbers
Answer = bool | str | None


def answer(tree: Expression, message: dict[str, str]) -> Answer:
    try:
        return CompiledExpression("", tree).evaluate(message)
    except FilterEvaluationError:
        return "error"


@examples(500)
@given(trees())
def test_a_printed_tree_parses_to_itself(tree: Expression) -> None:
    text = to_sql(tree)
    assert parse(text, "rocketray", rules_of(tree)) == tree
    if is_of_rocketmq(tree):
        assert parse(text) == with_numeric(tree, numeric=False)
    else:
        with pytest.raises(FilterSyntaxError, match="rocketray"):
            parse(text)


def is_of_rocketmq(tree: Expression) -> bool:
    """Whether it has none of the extensions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        quoted = isinstance(node, Property) and to_sql(node).startswith('"')
        if quoted or (isinstance(node, TextTest) and node.operator.is_extension):
            return False
        waiting += children(node)
    return True


@examples(500)
@given(trees(), messages())
def test_logic_follows_from_its_operands(tree: Expression, message: dict[str, str]) -> None:
    result = answer(tree, message)
    assert result in (True, False, None, "error")
    if isinstance(tree, Not):
        of_operand = answer(tree.operand, message)
        assert result == (not of_operand if isinstance(of_operand, bool) else of_operand)
    if isinstance(tree, And | Or):
        assert result == joined(tree, [answer(each, message) for each in tree.operands])


def parsed(sql: str, dialect: Dialect) -> Expression | FilterSyntaxError:
    try:
        return compile_expression(sql, dialect).tree
    except FilterSyntaxError as error:
        return error


def joined(tree: And | Or, answers: list[Answer]) -> Answer:
    """AND and OR by the definition: the first deciding answer or error, else unknown, else all."""
    deciding = isinstance(tree, Or)
    for each in answers:
        if each is deciding or each == "error":
            return each
    return None if None in answers else not deciding


@examples(1000)
@given(broken_texts(), st.sampled_from(get_args(Dialect)))
def test_any_text_gives_a_tree_or_a_marked_mistake(sql: str, dialect: Dialect) -> None:
    outcome = parsed(sql, dialect)
    if isinstance(outcome, FilterSyntaxError):
        assert 0 <= outcome.start <= outcome.end <= len(sql)
        assert str(outcome).startswith(outcome.reason)
    else:
        assert parse(to_sql(outcome), dialect) == outcome
        assert parsed(sql, "rocketray") == with_numeric(outcome, numeric=True)


@examples(200)
@given(
    broken_texts().filter(bool)
    | st.binary(min_size=1, max_size=8).map(lambda raw: raw.decode("latin-1"))
)
def test_the_steps_of_a_parse_grow_with_the_text_alone(piece: str) -> None:
    for length in (64, 512, SQL_MAX_CHARS):
        sql = (piece * length)[:length]
        assert calls_of(partial(parse, sql, "rocketray")) <= STEPS_A_CHARACTER * length


def calls_of(work: Callable[[], object]) -> int:
    """How many functions *work* calls, those of Python itself included."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with suppress(FilterSyntaxError):
            work()
    finally:
        sys.setprofile(before)
    return count


@settings(deadline=None)
@given(st.text(max_size=12) | st.from_regex(r"[+-]?[0-9]{1,12}", fullmatch=True))
def test_integers_agree_with_the_definition(text: str) -> None:
    digits = re.fullmatch(r"[+-]?\d+", text) and all(char <= "\uffff" for char in text)
    expected = int(text) if digits and -(2**31) <= int(text) < 2**31 else None
    try:
        assert to_int32(text) == expected
    except FilterEvaluationError:
        assert expected is None


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_any_double_is_read_back(value: float) -> None:
    assert to_double(repr(value).replace("inf", "Infinity")) == value
    if abs(value) != float("inf"):
        assert to_double(value.hex()) == value


@settings(deadline=None)
@given(st.lists(st.text(max_size=12)), st.text(max_size=12))
def test_a_bloom_filter_never_misses(texts: list[str], other: str) -> None:
    bloom = RocketBloomFilter(20, 32)
    for text in texts:
        bloom.add(text)
    assert all(text in bloom for text in texts)
    assert all(text in (bloom | RocketBloomFilter(20, 32)) for text in texts)
    if not texts:
        assert other not in bloom


TAGS = st.one_of(st.sampled_from(["Aa", "BB", "AaBB", "BBAa"]), st.text(min_size=1, max_size=3))


@settings(deadline=None)
@given(st.lists(TAGS, min_size=1, max_size=4), TAGS)
def test_the_codes_let_every_wanted_tag_through(wanted: list[str], tag: str) -> None:
    expression = " || ".join(wanted)
    try:
        check_tag(tag)
        subscription = parse_tags(expression)
    except ValueError:
        return
    tag_filter = MessageFilter(Subscription.tags(expression))
    code = tags_code(tag)
    if tag in subscription.tags_set:
        assert tag_filter.matches_entry(code)
        assert tag_filter.tag_codes is None or code in tag_filter.tag_codes
    if subscription.tags_set:
        assert tag_filter.matches_tags(tag) == (tag in subscription.tags_set)


@settings(deadline=None)
@given(trees(), messages())
def test_only_true_is_a_match(tree: Expression, message: dict[str, str]) -> None:
    compiled = compile_expression(to_sql(tree), "rocketray", rules_of(tree))
    result = answer(tree, message)
    if result == "error":
        with pytest.raises(FilterEvaluationError):
            compiled.matches(message)
    else:
        assert compiled.matches(message) is (result is True)
    if isinstance(tree, BooleanCast):
        assert result is not True  # a property is a text, and a text is never true
    if isinstance(tree, Literal):
        assert result is tree.value
