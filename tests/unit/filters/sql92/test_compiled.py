from __future__ import annotations

import pytest

from rocketray.errors import FilterSyntaxError
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.compiled import CACHE_SIZE, _compile


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    _compile.cache_clear()


def test_an_expression_is_compiled_once() -> None:
    assert compile_expression("a = 1") is compile_expression("a = 1")


def test_a_failure_is_found_once_and_raised_anew() -> None:
    errors = []
    for _ in range(3):
        with pytest.raises(FilterSyntaxError) as caught:
            compile_expression("a = ")
        errors.append(caught.value)
    assert _compile.cache_info().misses == 1
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])
    assert errors[2].__context__ is None


def test_the_cache_is_bounded() -> None:
    for i in range(CACHE_SIZE + 10):
        compile_expression(f"a = {i}")
    assert _compile.cache_info().currsize == CACHE_SIZE


def test_a_text_that_is_too_long_is_not_kept() -> None:
    with pytest.raises(FilterSyntaxError, match="at most 4096"):
        compile_expression("a" * 1_000_000)
    assert _compile.cache_info().currsize == 0


def test_it_shows_its_text() -> None:
    compiled = compile_expression("TAGS = 'pay'")
    assert compiled.sql == "TAGS = 'pay'"
    assert repr(compiled) == "CompiledExpression(\"TAGS = 'pay'\")"
