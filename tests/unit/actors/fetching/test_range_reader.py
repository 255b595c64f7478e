from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.shards import Shards

from rocketray.actors.fetching import range_reader
from rocketray.actors.fetching.range_reader import BATCH_BYTES, cut_batches, read_range
from rocketray.actors.fetching.read_plan import Range, ReadPlan
from rocketray.errors import StoreError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.store.reading.columns import column_schema

KEY = ("Trade", 0)


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path, Trade=1) as written:
        yield written


def plan(data: Path, subscription: Subscription | None = None, **changes: Any) -> ReadPlan:
    columns = ("queueOffset",)
    given: dict[str, Any] = {"batch_rows": 1000, "fail_on_data_loss": True} | changes
    chosen = subscription or Subscription.tags("*")
    return ReadPlan(data, chosen, columns, column_schema(columns), **given)


def offsets(plan: ReadPlan, start: int, stop: int) -> list[list[int]]:
    return [batch.column(0).to_pylist() for batch in read_range(plan, Range(KEY, start, stop))]


def test_a_range_is_read_in_batches(tmp_path: Path, shards: Shards) -> None:
    shards.fill("Trade", 0, 250)

    batches = offsets(plan(tmp_path, batch_rows=100), 5, 240)

    assert batches == [[*range(5, 105)], [*range(105, 205)], [*range(205, 240)]]


def test_nothing_is_handed_out_where_nothing_matches(tmp_path: Path, shards: Shards) -> None:
    shards.fill("Trade", 0, 20)

    assert offsets(plan(tmp_path, Subscription.tags("nobody")), 0, 20) == []
    assert offsets(plan(tmp_path, Subscription.tags(" || ")), 0, 20) == []
    assert offsets(plan(tmp_path, Subscription.sql("a > 100")), 0, 20) == []


def test_tags_with_one_code_are_told_apart(tmp_path: Path, shards: Shards) -> None:
    shards.fill("Trade", 0, 20)  # Aa is the fourth of five tags, BB the fifth

    assert offsets(plan(tmp_path, Subscription.tags("Aa")), 0, 20) == [[3, 8, 13, 18]]
    assert offsets(plan(tmp_path, Subscription.tags("BB||Aa")), 0, 10) == [[3, 4, 8, 9]]


def test_an_expression_without_properties_holds_for_all_or_none(
    tmp_path: Path, shards: Shards
) -> None:
    shards.fill("Trade", 0, 3)

    assert offsets(plan(tmp_path, Subscription.sql("1 = 1")), 0, 3) == [[0, 1, 2]]
    assert offsets(plan(tmp_path, Subscription.sql("1 = 2")), 0, 3) == []


def test_failed_evaluations_are_counted_in_one_line(
    tmp_path: Path, shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    shards.append([Message("Trade", b"", properties={"a": text}) for text in "1x2x"], 0)

    with caplog.at_level(logging.WARNING):
        assert offsets(plan(tmp_path, Subscription.sql("a > 0")), 0, 4) == [[0, 2]]

    assert "topic Trade queue 0: sql 'a > 0' failed on 2 of the messages 0 to 3" in caplog.text


def test_messages_deleted_since_the_plan_are_an_error_or_skipped(
    tmp_path: Path, shards: Shards
) -> None:
    shards.fill("Trade", 0, 20)
    shards.delete_before("Trade", 0, 8)

    with pytest.raises(StoreError, match="messages 4 to 7 were deleted"):
        offsets(plan(tmp_path), 4, 10)
    assert offsets(plan(tmp_path, fail_on_data_loss=False), 4, 10) == [[8, 9]]
    assert offsets(plan(tmp_path, fail_on_data_loss=False), 4, 7) == []


def test_messages_deleted_while_they_are_read_are_an_error_or_skipped(
    tmp_path: Path, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "_TAG_BLOCK_ENTRIES", 1000)
    shards.fill("Trade", 0, 2500)
    failing = read_range(plan(tmp_path), Range(KEY, 0, 2500))
    going_on = read_range(plan(tmp_path, fail_on_data_loss=False), Range(KEY, 0, 2500))
    read = [part.column(0).to_pylist() for part in (next(failing), next(going_on))]
    first = shards.expire("Trade", 0)
    with pytest.raises(StoreError, match=f"messages .* to {first - 1} were deleted"):
        list(failing)
    rest = [number for batch in going_on for number in batch.column(0).to_pylist()]
    assert read[0] == read[1] == list(range(1000))
    assert rest == list(range(first, 2500))


def test_a_batch_has_a_limit_in_bytes() -> None:
    sizes = np.array([3, 3, 3, 20, 1, 1], np.int32)

    assert [(part.start, part.stop) for part in cut_batches(sizes, 10, 7)] == [
        (0, 2),
        (2, 3),
        (3, 4),
        (4, 6),
    ]
    assert list(cut_batches(np.empty(0, np.int32), 10, 7)) == []
    assert BATCH_BYTES > 4 * 1024 * 1024  # the largest message fits a batch with others
