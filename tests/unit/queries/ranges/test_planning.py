from __future__ import annotations

import logging

import pytest

from rocketray.broker.fetching.read_plan import Bounds, Range
from rocketray.errors import ConfigError, StoreError
from rocketray.queries.ranges.planning import (
    BatchPace,
    count_waiting,
    next_ends,
    plan_batch,
    plan_stream,
)
from rocketray.store.queues.queue_gaps import QueueGaps

KEY = ("T", 0)
HELD = {KEY: Bounds(10, 20)}


def test_a_batch_reads_what_the_queues_hold() -> None:
    starts, ends = {KEY: 10, ("T", 1): 0}, {KEY: 20, ("T", 1): 0}

    assert plan_batch(starts, ends) == [Range(KEY, 10, 20)]


def test_a_batch_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ConfigError, match="would start at 15, which is after its end, 12"):
        plan_batch({KEY: 15}, {KEY: 12})


def test_a_stream_reads_from_one_offset_to_the_other() -> None:
    assert plan_stream({KEY: 12}, {KEY: 15}, HELD, fail_on_data_loss=True) == [Range(KEY, 12, 15)]
    assert plan_stream({KEY: 15}, {KEY: 15}, HELD, fail_on_data_loss=True) == []


def test_a_new_queue_is_read_from_its_first_message() -> None:
    assert plan_stream({}, {KEY: 15}, HELD, fail_on_data_loss=True) == [Range(KEY, 10, 15)]


@pytest.mark.proves("spark", "The option `failOnDataLoss`")
@pytest.mark.parametrize(
    ("start", "end", "bounds", "rest", "message"),
    [
        (5, 15, Bounds(10, 20), [Range(KEY, 10, 15)], "messages 5 to 9 were deleted"),
        (5, 8, Bounds(10, 20), [], "messages 5 to 9 were deleted"),
    ],
)
def test_a_loss_is_an_error_or_a_warning(
    *,
    start: int,
    end: int,
    bounds: Bounds,
    rest: list[Range],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StoreError, match=message):
        plan_stream({KEY: start}, {KEY: end}, {KEY: bounds}, fail_on_data_loss=True)

    with caplog.at_level(logging.WARNING):
        ranges = plan_stream({KEY: start}, {KEY: end}, {KEY: bounds}, fail_on_data_loss=False)
    assert ranges == rest
    assert message in caplog.text


def test_a_micro_batch_that_ends_before_its_start_is_empty() -> None:
    """The log was shorter, and the query was to go on from its end; it may have grown since."""
    for visible in (20, 50):
        held = {KEY: Bounds(0, visible)}
        assert plan_stream({KEY: 30}, {KEY: 20}, held, fail_on_data_loss=True) == []


def test_limits_count_what_can_still_be_read() -> None:
    ends = {KEY: 20}

    assert next_ends({KEY: 12}, ends, HELD, None) == {KEY: 20}
    assert next_ends({KEY: 12}, ends, HELD, 3) == {KEY: 15}
    assert next_ends({KEY: 2}, ends, HELD, 3) == {KEY: 13}  # after a loss
    assert next_ends({KEY: 99}, ends, HELD, 3) == {KEY: 20}  # the log is shorter than it was
    assert next_ends({}, ends, HELD, 3) == {KEY: 13}  # a new queue


@pytest.mark.proves("spark", "The option `maxOffsetsPerTrigger`")
def test_a_limit_is_shared_out_by_what_waits_and_no_queue_starves() -> None:
    starts = {("T", 0): 0, ("T", 1): 10, ("T", 2): 5}
    ends = {("T", 0): 1000, ("T", 1): 11, ("T", 2): 5}
    bounds = {key: Bounds(0, end) for key, end in ends.items()}

    assert next_ends(starts, ends, bounds, 2000) == ends
    assert next_ends(starts, ends, bounds, 100) == {("T", 0): 99, ("T", 1): 11, ("T", 2): 5}
    assert next_ends(starts, ends, bounds, 1) == {("T", 0): 1, ("T", 1): 11, ("T", 2): 5}


def test_a_limit_counts_messages_and_no_gap() -> None:
    bounds = {KEY: Bounds(0, 1_000_020, QueueGaps([(10, 1_000_000)]))}
    ends = {KEY: 1_000_020}

    assert next_ends({KEY: 0}, ends, bounds, 30) == ends
    assert next_ends({KEY: 5}, ends, bounds, 7) == {KEY: 1_000_002}
    assert next_ends({KEY: 77}, ends, bounds, 7) == {KEY: 1_000_007}
    behind = {KEY: Bounds(0, 500, QueueGaps([(10, 500)]))}
    assert next_ends({KEY: 10}, {KEY: 500}, behind, 7) == {KEY: 500}


def test_limited_steps_always_come_to_the_end() -> None:
    starts = {("T", queue): 0 for queue in range(3)}
    ends = {("T", 0): 17, ("T", 1): 1, ("T", 2): 230}
    bounds = {key: Bounds(0, end) for key, end in ends.items()}
    steps = 0
    while starts != ends:
        after = next_ends(starts, ends, bounds, 20)
        assert 0 < sum(after.values()) - sum(starts.values()) <= 22
        starts = after
        steps += 1
    assert steps <= 14


def test_what_waits_is_counted_as_the_limit_counts_it() -> None:
    assert count_waiting({KEY: 12}, HELD) == 8
    assert count_waiting({}, HELD) == 10  # a new queue
    assert count_waiting({KEY: 99}, HELD) == 0  # the log is shorter than it was
    gaps = {KEY: Bounds(0, 500, QueueGaps([(10, 500)]))}
    assert count_waiting({KEY: 7}, gaps) == 3


@pytest.mark.proves("spark", "The options `minOffsetsPerTrigger` and `maxTriggerDelay`")
def test_a_micro_batch_waits_for_enough_messages_or_for_its_time() -> None:
    pace = BatchPace(least=100, delay_s=60)
    assert (pace.least_now(5), pace.left_s(5)) == (1, 0)  # the first of a run begins at once

    pace.begin(5)
    assert (pace.least_now(64), pace.left_s(64)) == (100, 1)
    assert (pace.least_now(65), pace.left_s(65)) == (1, 0)

    pace.begin(70)
    assert pace.least_now(129) == 100
