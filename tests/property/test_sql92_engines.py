"""The scalar evaluator and the kernel give one answer, errors included."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from support.harness.amounts import examples, tenth
from support.models.expressions import messages, trees
from support.models.random_sql import PROPERTY_NAMES, random_expression, random_message, spans_of

from rocketray.base.property_string import decode_text
from rocketray.errors import FilterSyntaxError
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.compiled import CompiledExpression
from rocketray.filters.sql92.nodes import Expression
from rocketray.filters.sql92.program import state_of
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.condition_codes import State

MESSAGES = 20_000
EXPRESSIONS = tenth(1_000)
ROWS = 1_000  # messages for each expression: a million pairs in all


def random_compiled(generator: random.Random) -> CompiledExpression:
    while True:
        try:
            return compile_expression(
                random_expression(generator), "rocketray", generator.choice((1, 2))
            )
        except FilterSyntaxError:
            continue


def test_random_pairs_have_one_answer(rng: random.Random) -> None:
    pool = [random_message(rng) for _ in range(MESSAGES)]
    segment, starts, sizes = spans_of(pool, PROPERTY_NAMES)
    rows = {name: number for number, name in enumerate(PROPERTY_NAMES)}
    seen: Counter[int] = Counter()
    count = 0
    while count < EXPRESSIONS or not are_seen(seen):
        assert count < 10 * EXPRESSIONS, seen
        count += 1
        compiled = random_compiled(rng)
        first = rng.randrange(MESSAGES - ROWS)
        part = slice(first, first + ROWS)
        scalar = [state_of(compiled.evaluate, message) for message in pool[part]]
        vectorized = VectorizedExpression(compiled)
        wanted = [rows[name] for name in vectorized.names]
        of_spans = vectorized.evaluate(
            segment,
            np.ascontiguousarray(starts[wanted, part]),
            np.ascontiguousarray(sizes[wanted, part]),
        )
        assert of_spans.tolist() == scalar, (compiled.sql, differing(pool[part], scalar, of_spans))
        seen.update(scalar)


def are_seen(states: Counter[int]) -> bool:
    """Whether each state was seen often; some need an expression that is seldom drawn."""
    return all(states[state] > tenth(10) * ROWS for state in State if state is not State.ODD)


def differing(
    part: list[dict[str, str]], scalar: list[State], states: npt.NDArray[np.uint8]
) -> list[tuple[dict[str, str], State, int]]:
    rows = zip(part, scalar, states.tolist(), strict=True)
    return [row for row in rows if row[1] != row[2]][:3]


@examples(500)
@given(trees(), st.lists(messages(), max_size=5))
def test_any_tree_has_one_answer(tree: Expression, several: list[dict[str, str]]) -> None:
    compiled = CompiledExpression("", tree)
    vectorized = VectorizedExpression(compiled)
    scalar = [state_of(compiled.evaluate, message) for message in several]
    assert vectorized.evaluate(*spans_of(several, vectorized.names)).tolist() == scalar


def test_bytes_that_are_not_utf8_are_read_as_the_store_reads_them(rng: random.Random) -> None:
    pieces = [
        b"5",
        b" ",
        b"e",
        b"u",
        b"\xef\xbf\xbd",
        b"\xc3\xa9",
        b"\xc3",
        b"\xa9",
        b"\xed\xa0\x80",
        b"\xed\xa0",
        b"\xed\xb0\xbf",
        b"\xf0\x90",
    ]
    for _ in range(tenth(300)):
        compiled = random_compiled(rng)
        vectorized = VectorizedExpression(compiled)
        raw = [
            {name: b"".join(rng.choices(pieces, k=2)) for name in vectorized.names}
            for _ in range(20)
        ]
        texts = [{name: decode_text(one) for name, one in each.items()} for each in raw]
        scalar = [state_of(compiled.evaluate, message) for message in texts]
        assert vectorized.evaluate(*spans_of(raw, vectorized.names)).tolist() == scalar
