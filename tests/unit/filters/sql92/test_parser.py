from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

import pytest

from rocketray.errors import FilterSyntaxError
from rocketray.filters.sql92 import compile_expression, parse, to_sql
from rocketray.filters.sql92.nodes import (
    And,
    BooleanCast,
    Compare,
    IsNull,
    Kind,
    Literal,
    Negate,
    Not,
    Or,
    Property,
    TextTest,
    property_names,
)
from rocketray.filters.sql92.operators import IN, TEXT_OPERATORS, Operator
from rocketray.filters.sql92.parser import DEPTH_MAX, NODES_MAX, SQL_MAX_CHARS

A, B, C = Property("a"), Property("b"), Property("c")


def number(value: int) -> Literal:
    return Literal(Kind.INT32, value)


@pytest.mark.parametrize(
    ("sql", "tree"),
    [
        ("a = 5", Compare(Operator.EQ, A, number(5))),
        ("a", BooleanCast(A)),
        ("((a))", BooleanCast(A)),
        ("NOT a = TRUE", Compare(Operator.EQ, Not(BooleanCast(A)), Literal(Kind.BOOLEAN, True))),
        ("NOT (a <> b)", Not(Compare(Operator.NE, A, B))),
        ("a AND b OR c", Or((And((BooleanCast(A), BooleanCast(B))), BooleanCast(C)))),
        ("a AND (b AND c)", And((BooleanCast(A), BooleanCast(B), BooleanCast(C)))),
        ("a IS NOT NULL", IsNull(A, negated=True)),
        ("a > -+-5", Compare(Operator.GT, A, Negate(Negate(number(5))))),
        ("+a IN ('x', 'it''s')", TextTest(IN, A, ("x", "it's"), negated=False)),
        ("a NOT startswith 'x'", TextTest(TEXT_OPERATORS["STARTSWITH"], A, ("x",), negated=True)),
        (
            "a BETWEEN 1 AND 5 AND b",
            And(
                (
                    Compare(Operator.GE, A, number(1)),
                    Compare(Operator.LE, A, number(5)),
                    BooleanCast(B),
                )
            ),
        ),
        (
            "a NOT BETWEEN 5 AND 1",
            Or((Compare(Operator.LT, A, number(5)), Compare(Operator.GT, A, number(1)))),
        ),
        (
            "a = b > 1",
            Compare(Operator.EQ, A, Compare(Operator.GT, B, number(1))),
        ),
    ],
)
def test_the_tree_is_canonical(sql: str, tree: object) -> None:
    assert parse(sql) == tree
    assert parse(to_sql(parse(sql))) == tree


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2147483647", Kind.INT32),
        ("2147483648", Kind.INT64),
        ("5L", Kind.INT32),
        ("9223372036854775807", Kind.INT64),
        ("1e2", Kind.DOUBLE),
        ("5.", Kind.DOUBLE),
        ("4.9E-324", Kind.DOUBLE),
    ],
)
def test_a_number_has_the_narrowest_type_that_holds_it(text: str, kind: Kind) -> None:
    tree = parse(f"a = {text}")
    assert isinstance(tree, Compare)
    assert isinstance(tree.right, Literal)
    assert tree.right.kind is kind


MISTAKES = [
    # expression, what the caret marks, part of the reason
    ("", "", "expected a property"),
    ("a AND", "", "before the end"),
    ("AND a", "AND", "not AND"),
    ("(a = 5", "", "expected ')'"),
    ("a = 5 )", ")", "without its '('"),
    ("(a = 5))", ")", "without its '('"),
    ("a = 5 garbage here", "garbage", "complete before this"),
    ("a LIKE 'x%'", "LIKE", 'CONTAINS, STARTSWITH or ENDSWITH, or the dialect "rocketray"'),
    ("a = 1 + 1", "+", "arithmetic"),
    ("a = 5-1", "-", "arithmetic"),
    ("a * 2 = 2", "*", "arithmetic"),
    ("a = 007", "0", "leading zeros"),
    ("a = 0x10", "x10", "hexadecimal"),
    ("a = 5 -- note", "-", "comment"),
    ("a = 5;", ";", "semicolon"),
    ("a == 5", "=", "one ="),
    ("a != 5", "!", "<>"),
    ('a = "x"', '"x"', "single quotes"),
    ('a = "x', '"', "single quotes"),
    ('"a.b" = 1', '"a.b"', 'the dialect "rocketray"'),
    ("(a LIKE 'x')", "LIKE", 'the dialect "rocketray"'),
    ("(a NOT LIKE 'x')", "NOT", 'the dialect "rocketray"'),
    ('a = 1 "b"', '"b"', 'the dialect "rocketray"'),
    ("a NOT LIKE 'x'", "NOT", 'the dialect "rocketray"'),
    ("a IN (-1)", "-", 'the dialect "rocketray"'),
    ("a.b = 1", ".", "dot"),
    ("a = 'x", "'x", "closing quote"),
    ("a /* x", "/* x", "*/"),
    ("中文 = 1", "中", "ASCII"),
    ("a IS TRUE", "TRUE", "expected NULL"),
    ("a = NULL", "NULL", "IS NULL"),
    ("NULL <> a", "NULL", "IS NULL"),
    ("TRUE = 5", "5", "32-bit integer"),
    ("a > 'abc'", "'abc'", "string"),
    ("'abc' > a", "'abc'", "string"),
    ("a > TRUE", "TRUE", "boolean"),
    ("a >= NULL", "NULL", "null"),
    ("a > 1 > 2", "a > 1", "condition"),
    ("NOT a > 5", "NOT a", "binds tighter"),
    ("a BETWEEN 'a' AND 'b'", "'a'", "string"),
    ("a BETWEEN 1 AND 'b'", "'b'", "string"),
    ("a BETWEEN 5 AND 1.5", "5 AND 1.5", "lower bound"),
    ("a IN (1, 2)", "1", 'the dialect "rocketray"'),
    ("a IN ()", ")", "expected a string"),
    ("a IN ('x',)", ")", "expected a string"),
    ("'x' IN ('x')", "'x'", "only a property"),
    ("NOT a IN ('x')", "NOT a", "NOT IN"),
    ("a CONTAINS b", "b", "expected a string"),
    ("5", "5", "condition"),
    ("a AND 'x'", "'x'", "condition"),
    ("NOT -a", "-a", "condition"),
    ("a = 9223372036854775808", "9223372036854775808", "at most 9223372036854775807"),
    ("a > 0.0", "0.0", "zero"),
    ("a > 1e309", "1e309", "at most"),
    ("a = 1e-400", "1e-400", "zero"),
    ("a\n  AND b c", "c", "complete before this"),
]


@pytest.mark.parametrize(("sql", "marked", "reason"), MISTAKES)
def test_a_mistake_is_marked_and_explained(sql: str, marked: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(sql)
    assert sql[caught.value.start : caught.value.end] == marked
    assert reason in caught.value.reason


def brackets(depth: int) -> str:
    return "(" * depth + "a = 1" + ")" * depth


def prefixes(depth: int) -> str:
    return "NOT " * depth + "a"


def signs(depth: int) -> str:
    return "a = " + "- " * depth + "1"


def chain(depth: int) -> str:
    return "a" + " = a" * depth


@pytest.mark.parametrize("build", [brackets, prefixes, chain])
def test_depth_is_limited_to_64(build: Callable[[int], str]) -> None:
    parse(build(DEPTH_MAX))
    for depth in (DEPTH_MAX + 1, 200, 1000):
        with pytest.raises(FilterSyntaxError, match="at most 64 levels"):
            parse(build(depth))


def test_nodes_and_list_items_are_limited_to_1000() -> None:
    fitting = ",".join(["''"] * (NODES_MAX - 2))
    parse(f"a IN ({fitting})")
    with pytest.raises(FilterSyntaxError, match="at most 1000"):
        parse(f"a IN ({fitting},'')")
    with pytest.raises(FilterSyntaxError, match="at most 1000"):
        parse("a" + " OR a" * 800)


def test_length_is_limited_to_4_kib() -> None:
    parse("a".ljust(SQL_MAX_CHARS))
    with pytest.raises(FilterSyntaxError, match="4097 characters") as caught:
        parse("a".ljust(SQL_MAX_CHARS + 1))
    assert len(str(caught.value)) < 300


def test_a_tree_that_doubles_at_each_level_is_refused_at_once() -> None:
    sql = "a = 1"
    for _ in range(30):
        sql = f"-({sql}) BETWEEN b AND c"
    # Building its 2^30 nodes would not end before this test's timeout.
    with pytest.raises(FilterSyntaxError, match="at most 1000"):
        parse(sql)


PIECES = ["-", "- ", "--x ", "'", "''", "0", "1e", "/*", "/**/", "\n", "(", "NOT ", "a=", "a OR "]


@pytest.mark.parametrize("piece", PIECES)
def test_no_text_is_slow(piece: str) -> None:
    start = time.process_time()
    with contextlib.suppress(FilterSyntaxError):
        parse((piece * SQL_MAX_CHARS)[:SQL_MAX_CHARS])
    assert time.process_time() - start < 0.2


@pytest.mark.parametrize(
    "sql",
    [
        brackets(DEPTH_MAX),
        prefixes(DEPTH_MAX),
        signs(DEPTH_MAX - 1),
        chain(DEPTH_MAX),
        "(" * 15 + "a" + " CONTAINS 'x' = a AND a OR a)" * 15,
    ],
    ids=["brackets", "prefixes", "signs", "chain", "every level"],
)
def test_the_deepest_expression_works_deep_in_a_call_stack(sql: str) -> None:
    def dive(levels: int) -> None:
        if levels:
            return dive(levels - 1)
        compiled = compile_expression(sql)
        compiled.evaluate({})
        assert parse(to_sql(compiled.tree)) == compiled.tree
        return None

    frames = 0
    frame = sys._getframe()
    while frame.f_back:
        frame, frames = frame.f_back, frames + 1
    compile_expression.__globals__["_compile"].cache_clear()
    dive(sys.getrecursionlimit() // 2 - frames)


def test_property_names_are_all_that_is_looked_at() -> None:
    tree = parse("a > 1 AND (TAGS IN ('b') OR -(c = d) IS NULL) AND e")
    assert property_names(tree) == {"a", "TAGS", "c", "d", "e"}
