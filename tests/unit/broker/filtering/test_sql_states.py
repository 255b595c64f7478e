"""SQL92 over blocks of a queue: the scalar evaluator's answers, whatever the blocks are like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.stores import SMALL, FakeClock

from rocketray.broker.filtering.filter_stream import sql_states
from rocketray.errors import CorruptRecordError
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.program import state_of
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.condition_codes import State
from rocketray.message import Message
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader

COUNT = 60
VALUES = ("5", "15", "x", "１５", "99999999999", "")  # the fourth is a number to Java alone
EXPRESSION = compile_expression("a BETWEEN 10 AND 20 OR region = 'eu'")


def properties(number: int) -> dict[str, str]:
    value = VALUES[number // 20 * 2 + number % 2]  # of each kind there is a block
    return {"region": "eu" if number % 7 == 0 else "us"} | ({"a": value} if value else {})


@pytest.fixture(params=[False, True], ids=["plain", "with CRCs"])
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[QueueReader]:
    config = replace(
        SMALL,
        commit_log_segment_bytes=8192,
        consume_queue_segment_entries=25,
        append_properties_crc=request.param,
    )
    with MessageStore(tmp_path / "store", config, clock_ms=FakeClock()) as store:
        for number in range(COUNT):
            store.put([Message("Trade", bytes(200), properties=properties(number))], 0)
    with QueueReader(tmp_path / "store", "Trade", 0) as opened:
        yield opened


@pytest.mark.parametrize("size", [1, 7, 20, COUNT])
def test_each_state_is_what_the_scalar_evaluator_says(reader: QueueReader, size: int) -> None:
    expression = VectorizedExpression(EXPRESSION)
    found: list[int] = []
    for first in range(0, COUNT, size):
        entries = reader.entries(first, min(first + size, COUNT))
        found += sql_states(expression, reader, entries).tolist()
    expected = [state_of(EXPRESSION.evaluate, properties(number)) for number in range(COUNT)]
    assert found == expected
    assert {State.TRUE, State.FALSE, State.NULL, State.NOT_INT32} <= set(expected)


def test_no_entries_have_no_states(reader: QueueReader) -> None:
    states = sql_states(VectorizedExpression(EXPRESSION), reader, reader.entries(3, 3))
    assert states.tolist() == []


def test_a_record_that_is_not_there_is_an_error_and_no_state(reader: QueueReader) -> None:
    entries = reader.entries(0, 4)
    entries.sizes[2] += 1
    with pytest.raises(CorruptRecordError, match="queue offset 2 of topic 'Trade' queue 0"):
        sql_states(VectorizedExpression(EXPRESSION), reader, entries)


def test_a_block_is_judged_at_once_unless_something_about_it_is_unusual(
    reader: QueueReader,
) -> None:
    conditions = VectorizedExpression(EXPRESSION).conditions
    assert reader.judge(reader.entries(0, 10), conditions) is not None
    assert reader.judge(reader.entries(22, 28), conditions) is None  # a value is odd
    assert reader.judge(reader.entries(0, COUNT), conditions) is None  # two segments
    assert reader.judge(reader.entries(0, 0), conditions) is None
