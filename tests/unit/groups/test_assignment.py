"""How queues are divided among members."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rocketmq.golden import golden_rows

from rocketray.errors import ConfigError
from rocketray.groups.assignment import (
    Strategy,
    averagely,
    by_circle,
    check_strategy,
    consistent_hash,
    divide,
    sticky,
)

QUEUES = st.integers(1, 40)
SESSIONS = st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9)


def assert_equal_shares(shares: dict[int, str], queues: int, members: set[str]) -> None:
    assert sorted(shares) == list(range(queues))
    assert set(shares.values()) <= members
    sizes = Counter(shares.values())
    assert max(sizes.values()) - min(sizes[name] for name in members) <= 1


def allocate(case: dict[str, Any]) -> dict[int, str]:
    queues, members = case["queues"], list(case["shares"])
    if case["strategy"] == "consistent_hash":
        return consistent_hash(case["topic"], queues, members, case["broker"])
    return {"averagely": averagely, "by_circle": by_circle}[case["strategy"]](queues, members)


@pytest.mark.proves("groups", "Queues are divided as RocketMQ divides them")
def test_queues_are_divided_as_rocketmq_divides_them() -> None:
    for case in golden_rows("allocation"):
        expected = {queue: name for name, share in case["shares"].items() for queue in share}
        assert allocate(case) == expected, case


@given(QUEUES, SESSIONS)
def test_shares_are_equal(queues: int, members: set[str]) -> None:
    assert_equal_shares(averagely(queues, members), queues, members)
    assert_equal_shares(by_circle(queues, members), queues, members)


@given(st.sampled_from(get_args(Strategy)), QUEUES, SESSIONS)
def test_every_queue_has_one_owner_whatever_the_order_of_the_members(
    strategy: Strategy, queues: int, members: set[str]
) -> None:
    shares = divide(strategy, "T", queues, sorted(members), {})
    assert sorted(shares) == list(range(queues))
    assert set(shares.values()) <= members
    assert divide(strategy, "T", queues, sorted(members, reverse=True), {}) == shares


@pytest.mark.proves(
    "groups",
    "With `consistent_hash`, only the queues of the member that joins or leaves move",
)
@given(QUEUES, SESSIONS, st.text(min_size=5, max_size=5))
def test_a_ring_moves_only_the_queues_of_who_joins_or_leaves(
    queues: int, members: set[str], joining: str
) -> None:
    before = consistent_hash("T", queues, members)
    after = consistent_hash("T", queues, members | {joining})
    assert all(after[queue] in (before[queue], joining) for queue in range(queues))


@given(QUEUES, SESSIONS, st.text(min_size=5, max_size=5))
def test_sticky_moves_only_to_who_joins_and_only_from_who_leaves(
    queues: int, members: set[str], joining: str
) -> None:
    before = sticky(queues, members, {})
    after = sticky(queues, members | {joining}, before)
    assert all(after[queue] in (before[queue], joining) for queue in range(queues))
    again = sticky(queues, members, after)
    moved = {queue for queue in range(queues) if again[queue] != after[queue]}
    assert moved == {queue for queue in range(queues) if after[queue] == joining}


@pytest.mark.proves("groups", "`sticky` gives equal shares and moves only the excess")
@given(QUEUES, SESSIONS, st.dictionaries(st.integers(0, 45), st.text(max_size=4)), st.data())
def test_sticky_gives_equal_shares_and_moves_only_what_is_over_a_share(
    queues: int, members: set[str], strangers: dict[int, str], data: st.DataObject
) -> None:
    owned = st.dictionaries(st.integers(0, queues - 1), st.sampled_from(sorted(members)))
    owners = {**strangers, **data.draw(owned)}
    shares = sticky(queues, members, owners)
    assert_equal_shares(shares, queues, members)
    assert sticky(queues, members, shares) == shares
    had = Counter(owners.get(queue) for queue in range(queues))
    kept = Counter(shares[queue] for queue in range(queues) if owners.get(queue) == shares[queue])
    sizes = Counter(shares.values())
    for name in members:
        assert kept[name] == min(had[name], sizes[name])


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_without_members_nobody_owns_anything(strategy: Strategy) -> None:
    assert divide(strategy, "T", 4, [], {0: "a"}) == {}


def test_an_unknown_strategy_is_refused_with_those_there_are() -> None:
    check_strategy("sticky")
    with pytest.raises(ConfigError, match=r"no strategy 'AVG'.*averagely, by_circle"):
        check_strategy("AVG")
