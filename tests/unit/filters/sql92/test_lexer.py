from __future__ import annotations

import pytest

from rocketray.filters.sql92.lexer import TokenKind, tokenize


def kinds(sql: str) -> list[str]:
    return [token.kind.name for token in tokenize(sql)]


def texts(sql: str) -> list[str]:
    return [token.text for token in tokenize(sql)][:-1]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a>=5and b<6", ["a", ">=", "5", "and", "b", "<", "6"]),
        ("a<>b", ["a", "<>", "b"]),
        ("a==b", ["a", "=", "=", "b"]),
        ("007", ["0", "0", "7"]),
        ("0x10", ["0", "x10"]),
        ("0L", ["0", "L"]),
        ("10L", ["10L"]),
        ("007.5", ["007.5"]),
        ("1.", ["1."]),
        ("1.e", ["1.", "e"]),
        ("1.e5", ["1.e5"]),
        ("1e5L", ["1e5", "L"]),
        (".5E-3", [".5E-3"]),
        ("1e", ["1", "e"]),
        ("'it''s'", ["'it''s'"]),
        ("''''", ["''''"]),
        ("'a\nb\\'", ["'a\nb\\'"]),
        ("$a_1", ["$a_1"]),
        ("- -1", ["-", "-", "1"]),
        ("--1", ["-", "-", "1"]),
        ("--1\n2", ["2"]),
        ("--1\r2", ["2"]),
        ("1--x\r\n2", ["1", "2"]),
        ("a/**/=/* '*/5", ["a", "=", "5"]),
        ("/***/ a /* * / */", ["a"]),
        ("a\t\r\n\f b", ["a", "b"]),
    ],
)
def test_tokens_are_the_longest_that_match(sql: str, expected: list[str]) -> None:
    assert texts(sql) == expected


@pytest.mark.parametrize(
    ("sql", "illegal"),
    [
        ("a = 'x", "'x"),
        ("a /* x", "/* x"),
        ("/*/", "/*/"),
        ('a = "x', '"'),
        ('a = ""', '"'),
        ("a.b", "."),
        ("a\u00a0= 1", "\u00a0"),
        ("中 = 1", "中"),
        ("\u212a = 1", "\u212a"),  # the Kelvin sign lowers to k, and is no letter here
        ("\ud800", "\ud800"),
        ("a = \uff15", "\uff15"),
    ],
)
def test_text_that_is_no_token_ends_the_list(sql: str, illegal: str) -> None:
    last = list(tokenize(sql))[-1]
    assert last.kind is TokenKind.ILLEGAL
    assert last.text == illegal
    assert sql[last.start : last.end] == illegal


def test_keywords_are_known_in_any_case_and_only_whole() -> None:
    assert kinds("nOt BETWEENx between Like") == [
        "NOT",
        "IDENTIFIER",
        "BETWEEN",
        "IDENTIFIER",
        "END",
    ]


def test_a_token_knows_where_it_stands() -> None:
    sql = " a  >= 'x''y' "
    assert [sql[token.start : token.end] for token in tokenize(sql)] == ["a", ">=", "'x''y'", ""]
