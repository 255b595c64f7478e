"""How a topic's queues are spread over disks and processes, and that a queue stays where it is."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rocketray.base.names import SHARED, QueuesPerProcess
from rocketray.broker.topics.placement import (
    ONE_EACH,
    DiskSpace,
    Placement,
    all_on_one,
    drained,
    rebalanced,
    spread_over,
)
from rocketray.errors import ConfigError


@pytest.mark.parametrize(
    ("rule", "cores", "queues", "own", "processes"),
    [
        (None, 4, 1, None, (0,)),
        (None, 4, 3, None, (0, 1, 2)),
        (None, 2, 5, None, (0, 1, 0, 1, 0)),
        (None, 2, 4, 1, (0, 1, 2, 3)),
        (None, 2, 5, 3, (0, 1, 0, 1, 0)),
        (3, 2, 7, None, (0, 1, 2, 0, 1, 2, 0)),
        (SHARED, 2, 3, None, ()),
        (SHARED, 2, 3, 2, (0, 1, 0)),
        (1, 2, 3, SHARED, ()),
    ],
)
def test_a_new_topic_has_as_many_processes_as_it_or_the_node_says_or_cores(
    rule: QueuesPerProcess,
    cores: int,
    queues: int,
    own: QueuesPerProcess,
    processes: tuple[int, ...],
) -> None:
    assert Placement(rule, cores).place_own((), ("",) * queues, own) == processes


def test_queues_that_come_later_go_where_there_is_most_room() -> None:
    assert Placement(None, 2).place_own((0,), ("",) * 4, None) == (0, 1, 0, 1)
    assert Placement(None, 1).place_own((0, 1, 2), ("",) * 6, None) == (0, 1, 2, 0, 1, 2)
    assert Placement(None, 8).place_own((0, 0, 0, 0), ("",) * 6, 4) == (0, 0, 0, 0, 1, 1)
    assert ONE_EACH.place_own((0, 1), ("",) * 3, None) == (0, 1, 2)


def test_a_process_has_queues_of_one_disk_only() -> None:
    assert Placement(None, 2).place_own((), ("", "b", "", "b", "", "b"), None) == (0, 2, 1, 3, 0, 2)
    assert Placement(3).place_own((), ("a", "b", "a", "b"), None) == (0, 1, 0, 1)
    assert Placement(None, 1).place_own((0, 0), ("", "", "b", ""), None) == (0, 0, 1, 0)
    assert Placement(SHARED).place_own((), ("", "b"), None) == ()


def test_a_queue_goes_where_its_topic_has_fewest_then_where_all_topics_have_fewest() -> None:
    two = Placement(cores=2)
    loads = {("", 0): 5, ("", 1): 4, ("b", 0): 1}
    assert two.place_common((), ("",) * 4, {}) == (0, 1, 0, 1)
    assert two.place_common((), ("",), loads) == (1,)
    assert two.place_common((), ("", "b"), loads) == (1, 1)
    assert two.place_common((0, 0), ("",) * 4, loads) == (0, 0, 1, 1)
    assert two.place_common((7,), ("",) * 3, {}) == (7, 0, 1)


def test_however_topics_come_and_grow_no_queue_moves_and_processes_have_equally_many(
    seed: int,
) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        placement = Placement(cores=rng.randint(1, 8))
        disks = [("", "b", "c")[: rng.randint(1, 3)] for _ in range(20)]
        topics: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
        for of_topic in disks:
            places: tuple[str, ...] = ()
            processes: tuple[int, ...] = ()
            for _ in range(2):
                loads = Counter(each for topic in topics for each in zip(*topic, strict=True))
                loads.update(zip(places, processes, strict=True))
                places += tuple(rng.choice(of_topic) for _ in range(rng.randint(0, 6)))
                grown = placement.place_common(processes, places, loads)
                assert grown[: len(processes)] == processes
                processes = grown
            topics.append((places, processes))
            for disk in of_topic:
                own = Counter(p for d, p in zip(places, processes, strict=True) if d == disk)
                numbers = [own[each] for each in range(placement.cores)]
                assert max(numbers) - min(numbers) <= 1


def test_queues_are_spread_over_zones_then_over_disks_then_to_where_there_is_room() -> None:
    near = [DiskSpace("", "z1", 10), DiskSpace("b", "z1", 30), DiskSpace("c", "z2", 20)]
    assert spread_over(near, (), 2) == ("b", "c")
    assert spread_over(near, (), 6) == ("b", "c", "", "c", "b", "c")
    assert spread_over(near, ("c", "c"), 4) == ("c", "c", "b", "")
    assert spread_over(near[:1], (), 2) == ("", "")
    assert spread_over(near, ("gone",), 2) == ("gone", "b")
    assert all_on_one((), 3) == ("", "", "")
    assert all_on_one(("b",), 3) == ("b", "", "")


def test_however_disks_are_no_queue_moves_and_no_disk_of_a_zone_gets_two_more(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        disks = [
            DiskSpace(f"d{number}", rng.choice("xyz"), rng.randrange(5))
            for number in range(rng.randint(1, 9))
        ]
        present: tuple[str, ...] = ()
        for queues in sorted(rng.randint(1, 60) for _ in range(3)):
            placed = spread_over(rng.sample(disks, len(disks)), present, queues)
            assert placed[: len(present)] == present
            zones: dict[str, list[int]] = {}
            for disk in disks:
                zones.setdefault(disk.zone, []).append(placed.count(disk.disk))
            sums = [sum(each) for each in zones.values()]
            assert max(sums) - min(sums) <= 1
            assert all(max(each) - min(each) <= 1 for each in zones.values())
            present = placed


def test_a_disk_is_drained_to_where_new_queues_would_go() -> None:
    disks = [DiskSpace("", "z1", 10), DiskSpace("b", "z1", 30), DiskSpace("c", "z2", 20)]
    assert drained(disks, ("b", "c", "b", ""), "b") == [(0, "b", "c"), (2, "b", "")]
    assert drained(disks, ("", "c"), "b") == []


def test_queues_are_spread_as_those_of_a_new_topic_by_the_fewest_moves() -> None:
    two = [DiskSpace("", "", 10), DiskSpace("b", "", 30)]
    assert rebalanced(two, ("", "", "", "")) == [(2, "", "b"), (3, "", "b")]
    assert rebalanced(two, ("", "", "b")) == []
    assert rebalanced(two, ("gone", "", "")) == [(2, "", "b")]
    assert rebalanced([], ("", "")) == []


def test_however_disks_are_the_moves_spread_each_topic_and_none_is_in_vain(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        disks = [
            DiskSpace(f"d{number}", rng.choice("xyz"), rng.randrange(5))
            for number in range(rng.randint(1, 6))
        ]
        names = [each.disk for each in disks]
        present = [rng.choice([*names, "gone"]) for _ in range(rng.randint(0, 12))]
        after = list(present)
        for move in rebalanced(disks, present):
            assert after[move.queue_id] == move.source != move.target
            after[move.queue_id] = move.target
        assert rebalanced(disks, after) == []
        here = [disk for disk in after if disk != "gone"]
        zones = {each.zone: 0 for each in disks}
        for each in disks:
            zones[each.zone] += here.count(each.disk)
        assert max(zones.values()) - min(zones.values()) <= 1
        for zone in zones:
            counts = [here.count(each.disk) for each in disks if each.zone == zone]
            assert max(counts) - min(counts) <= 1
        if len(disks) > 1:
            left = list(present)
            for move in drained(disks, present, names[0]):
                left[move.queue_id] = move.target
            assert names[0] not in left
            stay = [(a, b) for a, b in zip(present, left, strict=True) if a != names[0]]
            assert all(a == b for a, b in stay)


def test_however_a_topic_grows_no_queue_moves_and_no_process_gets_too_many(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        most = rng.choice((None, 1, 2, 5, 64))
        placement = Placement(most, cores=rng.randint(1, 8))
        disks = [rng.choice(("", "b", "c")) for _ in range(200)]
        present: tuple[int, ...] = ()
        for queues in sorted(rng.randint(1, 200) for _ in range(4)):
            placed = placement.place_own(present, disks[:queues], None)
            assert placed[: len(present)] == present
            assert len(placed) == queues
            loads = [placed.count(process) for process in range(1 + max(placed))]
            assert min(loads) > 0
            assert most is None or max(loads) <= most
            owners = set(zip(placed, disks, strict=False))
            assert len(owners) == len(set(placed))
            present = placed


@pytest.mark.parametrize("wrong", [0, -1, 1025, True, "all", 1.5])
def test_a_number_that_is_none_is_refused(wrong: QueuesPerProcess) -> None:
    with pytest.raises(ConfigError, match="queues per process"):
        Placement(wrong)
