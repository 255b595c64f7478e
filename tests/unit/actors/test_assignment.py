"""How queues are divided among members."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rocketray.actors.assignment import averagely, sticky

QUEUES = st.integers(1, 40)
MEMBERS = st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9)


def assert_equal_shares(shares: dict[int, str], queues: int, members: set[str]) -> None:
    assert sorted(shares) == list(range(queues))
    assert set(shares.values()) <= members
    sizes = Counter(shares.values())
    assert max(sizes.values()) - min(sizes[name] for name in members) <= 1


@given(QUEUES, MEMBERS)
def test_averagely_gives_each_queue_to_one_member_in_equal_shares(
    queues: int, members: set[str]
) -> None:
    shares = averagely(queues, members)
    assert_equal_shares(shares, queues, members)
    assert [shares[queue] for queue in range(queues)] == sorted(shares.values())


@given(QUEUES, MEMBERS, st.dictionaries(st.integers(0, 45), st.text(max_size=4)), st.data())
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


def test_without_members_nobody_owns_anything() -> None:
    assert averagely(4, []) == {}
    assert sticky(4, [], {0: "a"}) == {}
