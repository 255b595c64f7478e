from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.services.delays.due_times import Due, DueTimes


def due(times: list[tuple[int, int, int]]) -> Due:
    rows = np.array(times, np.int64).reshape(-1, 3)
    return Due(rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int32))


def rows(taken: Due) -> list[tuple[int, int]]:
    return list(zip(taken.due_ms.tolist(), taken.offsets.tolist(), strict=True))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_messages_come_when_they_are_due_and_in_that_order(chance: random.Random) -> None:
    times, model, offset = DueTimes(), list[tuple[int, int, int]](), 0
    for _ in range(30):
        match chance.randrange(4):
            case 0 | 1:
                count = chance.choice([0, 1, 2, 7])
                new = [
                    (chance.randrange(100_000), offset + i, chance.randrange(40))
                    for i in range(count)
                ]
                offset += count
                model += new
                times.add(due(new))
            case 2:
                now, limit = chance.randrange(100_000), chance.choice([1, 3, 100])
                ready = sorted(one for one in model if one[0] <= now)[:limit]
                assert rows(times.take(now, limit)) == [one[:2] for one in ready]
                model = [one for one in model if one not in ready]
            case _:
                now = chance.randrange(100_000)
                times.limit_waits(now)
                model = [(min(at, now + 1000 * wait), one, wait) for at, one, wait in model]
        assert len(times) == len(model)
        assert times.next_ms() == min((one[0] for one in model), default=None)


@pytest.mark.proves("delays", "A million waiting messages take 20 bytes each")
def test_a_million_messages_take_twenty_bytes_each() -> None:
    times, count = DueTimes(), 1_000_000
    chance = np.random.default_rng(5)
    for first in range(0, count, 100_000):
        offsets = np.arange(first, first + 100_000, dtype=np.int64)
        times.add(Due(chance.integers(0, 1 << 40, 100_000), offsets, np.ones(100_000, np.int32)))
    held = sum(column.nbytes for run in times._runs for column in run.due)
    assert held == 20 * count
    taken = times.take(1 << 40, count)
    assert (np.diff(taken.due_ms) >= 0).all()
    assert len(times) == 0
