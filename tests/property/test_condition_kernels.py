"""The kernel that runs conditions does what its oracle does, and reads numbers as Java does."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from oracles.numerals import read_double, read_integer
from support.harness.amounts import examples
from support.models.random_sql import random_expression, spans_of
from support.models.records import RawRecord, i32, i64, u8

from rocketray.errors import FilterEvaluationError, FilterSyntaxError
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.coercion import to_double, to_int32, to_int64
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.conditions import run_program
from rocketray.kernels.numerals import (
    BAD,
    NUMERAL,
    ODD,
)
from rocketray.kernels.records import judge_records

numerals = st.one_of(
    st.text("+-0123456789.eEdfxNI \t５", max_size=25),
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(repr),
    st.text(max_size=5),
)


def random_program(generator: random.Random) -> VectorizedExpression:
    while True:
        try:
            compiled = compile_expression(
                random_expression(generator), "rocketray", generator.choice((1, 2))
            )
            return VectorizedExpression(compiled)
        except FilterSyntaxError:
            continue


@settings(max_examples=120, deadline=None)
@given(
    st.randoms(use_true_random=False), st.lists(st.binary(max_size=6) | numerals.map(str.encode))
)
def test_programs_run_alike(generator: random.Random, values: list[bytes]) -> None:
    program = random_program(generator)
    messages = [
        {name: value for name in program.names if (value := generator.choice([*values, None]))}
        for _ in range(10)
    ]
    arguments = (
        *spans_of(messages, program.names),
        *program.conditions[2:],
    )
    ours, theirs = np.zeros((2, len(messages)), np.uint8)
    assert run_program(*arguments, ours) == oracle_of(run_program)(*arguments, theirs)
    assert ours.tolist() == theirs.tolist()


@settings(max_examples=120, deadline=None)
@given(
    st.randoms(use_true_random=False), st.lists(st.binary(max_size=6) | numerals.map(str.encode))
)
def test_records_are_judged_alike(generator: random.Random, values: list[bytes]) -> None:
    program = random_program(generator)
    raw = bytearray()
    offsets, sizes = [], []
    for _ in range(6):
        pairs = [(name, generator.choice([*values, b""])) for name in program.names]
        pairs += [("__CRC32#", b"0123456789")] * (generator.random() < 0.02)
        properties = b"".join(name.encode() + b"\x01" + value + b"\x02" for name, value in pairs)
        record = RawRecord(properties=properties, physical_offset=500 + len(raw)).encode()
        offsets.append(500 + len(raw))
        sizes.append(len(record))
        raw += record
    if generator.random() < 0.2:
        raw[generator.randrange(len(raw))] ^= 1
    entries = u8(bytes(raw)), 500, i64(offsets), i32(sizes), i64([0] * 6), 0
    arguments = (*entries, *program.conditions)
    ours, theirs = np.zeros((2, 6), np.uint8)
    is_done = judge_records(*arguments, ours)
    assert oracle_of(judge_records)(*arguments, theirs) is is_done
    if is_done:
        assert ours.tolist() == theirs.tolist()


def value_of(convert: object, text: str) -> object:
    assert callable(convert)
    try:
        return convert(text)
    except FilterEvaluationError:
        return BAD


@examples(1000)
@given(numerals)
@example("9223372036854775807")
@example("-9223372036854775808")
@example("9223372036854775808")
@example("9" * 5000)
@example("0" * 5000 + "7")
def test_an_integer_is_read_or_refused_as_by_java_or_odd(text: str) -> None:
    for is_int32, convert in ((True, to_int32), (False, to_int64)):
        kind, value = read_integer(text.encode("utf-8", "replace"), is_int32=is_int32)
        expected = value_of(convert, text)
        assert kind == ODD or (expected == value if kind == NUMERAL else expected is BAD)
        assert kind != ODD or not text.isascii()


@examples(1000)
@given(numerals)
@example("9007199254740992e22")
@example("9007199254740993")
@example("1e-22")
@example("-0.0e999999999999")
def test_a_double_is_read_or_refused_as_by_java_or_odd(text: str) -> None:
    kind, value = read_double(text.encode("utf-8", "replace"))
    expected = value_of(to_double, text)
    if kind == NUMERAL:
        assert repr(value) == repr(expected)  # which tells -0.0 from 0.0
    assert kind != BAD or expected is BAD
