"""Large ranges are split into tasks, small ones share a task, and nothing is read twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.broker.fetching.read_plan import Bounds, Range
from rocketray.queries.ranges.division import Division, divide
from rocketray.store.queues.queue_gaps import QueueGaps


def tasks(
    sizes: list[int],
    wanted: Division | None = None,
    gaps: QueueGaps | None = None,
) -> list[list[tuple[int, int, int]]]:
    """Queue, start and stop of the ranges of each task, for whole queues of these sizes."""
    bounds = {
        ("T", queue): Bounds(0, size, gaps or QueueGaps()) for queue, size in enumerate(sizes)
    }
    ranges = [Range(key, 0, held.visible) for key, held in bounds.items() if held.visible]
    return [
        [(part.key[1], part.start, part.stop) for part in task]
        for task in divide(ranges, bounds, wanted or Division())
    ]


def test_few_messages_of_several_queues_are_one_task() -> None:
    assert tasks([500, 1500, 0, 500]) == [[(0, 0, 500), (1, 0, 1500), (3, 0, 500)]]
    assert tasks([]) == []


@pytest.mark.proves("spark", "A queue is a task, and small ones share one")
def test_many_messages_are_a_task_of_each_queue() -> None:
    assert tasks([4000, 4000, 900, 6000]) == [
        [(0, 0, 4000)],
        [(1, 0, 4000), (2, 0, 900)],
        [(3, 0, 6000)],
    ]


@pytest.mark.proves("spark", "The options `minPartitions` and `maxRecordsPerPartition`")
def test_a_range_is_split_where_tasks_are_limited() -> None:
    assert tasks([10, 3], Division(max_records=4)) == [
        [(0, 0, 3)],
        [(0, 3, 6)],
        [(0, 6, 10)],
        [(1, 0, 3)],
    ]
    assert tasks([2, 2, 2], Division(max_records=4)) == [[(0, 0, 2), (1, 0, 2)], [(2, 0, 2)]]


@pytest.mark.proves("spark", "The options `minPartitions` and `maxRecordsPerPartition`")
def test_a_number_of_tasks_is_divided_by_what_the_queues_hold() -> None:
    found = tasks([3000, 1000, 10], Division(min_partitions=4))

    assert [len(task) for task in found] == [1] * 5
    assert [task[0][0] for task in found] == [0, 0, 0, 1, 2]
    assert tasks([1, 2], Division(min_partitions=9)) == [[(0, 0, 1)], [(1, 0, 1)], [(1, 1, 2)]]
    assert len(tasks([6, 6], Division(min_partitions=2, max_records=2))) == 6


def test_gaps_count_as_no_messages() -> None:
    gaps = QueueGaps([(10, 1000)])

    assert tasks([1010], Division(min_partitions=2), gaps) == [[(0, 0, 10)], [(0, 10, 1010)]]
    assert tasks([5, 1000], gaps=QueueGaps([(0, 5)])) == [[(1, 0, 1000)]]
    assert tasks([100_000], gaps=QueueGaps([(10, 99_999)])) == [[(0, 0, 100_000)]]


@pytest.mark.proves("spark", "The options `minPartitions` and `maxRecordsPerPartition`")
@given(
    st.lists(st.integers(0, 30_000), max_size=6),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 5000),
)
def test_every_message_is_in_one_task(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    found = tasks(sizes, Division(least, most))

    for queue, size in enumerate(sizes):
        parts = [part for task in found for part in task if part[0] == queue]
        assert [start for _, start, _ in parts] == [0, *(stop for *_, stop in parts)][: len(parts)]
        assert sum(stop - start for _, start, stop in parts) == size
    counts = [sum(stop - start for _, start, stop in task) for task in found]
    assert all(count <= (most or sum(sizes)) for count in counts)
    if least is not None:
        assert len(found) >= min(least, sum(sizes))


@pytest.mark.proves("spark", "A queue is a task, and small ones share one")
@pytest.mark.parametrize("queues", [1, 4, 16])
def test_a_small_micro_batch_is_one_task_however_many_queues_it_is_of(queues: int) -> None:
    assert len(tasks([2000 // queues] * queues)) == 1
