"""A filter that leaves out what its author wants is doubted before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.shards import Shards

from rocketray.broker.filtering.filter_advice import advise_filter, doubts
from rocketray.errors import FilterSyntaxError, StoreError
from rocketray.filters.subscription import Subscription


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A topic whose messages have the properties region, and mostly a; its tags are pay, Aa, …"""
    directory = tmp_path_factory.mktemp("data")
    with Shards(directory, Trade=2, Empty=1) as shards:
        shards.fill("Trade", 0, 30)
        yield directory


@pytest.mark.parametrize(
    ("subscription", "says"),
    [
        (Subscription.sql("regoin = 'eu'"), "regoin is in none of 30 recent messages; did you m"),
        (Subscription.sql("region = 'eu' AND a > 5 AND a < 3"), "exclude each other"),
        (Subscription.sql("TAGS = 'pay || order'"), "write TAGS IN ('pay', 'order')"),
        (Subscription.tags("pay|order"), "one-tag: 'pay|order' is one tag"),
        (Subscription.tags("pya || order"), "did you mean pay?"),
    ],
)
def test_a_filter_that_gives_nothing_is_doubted(
    data: Path, subscription: Subscription, says: str
) -> None:
    (line,) = doubts(data, ["Trade"], subscription)
    assert line.startswith(f"topic Trade, {subscription}: ")
    assert says in line


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription.tags("*"),
        Subscription.tags("pay || order"),
        Subscription.sql("region <> 'eu'"),  # checked, it is told of messages without a region
        Subscription.where("nowhere:predicate"),
    ],
)
def test_a_sound_filter_is_not_doubted(data: Path, subscription: Subscription) -> None:
    assert doubts(data, ["Trade", "Empty"], subscription) == []


def test_a_topic_that_cannot_be_read_leaves_the_text(data: Path) -> None:
    assert doubts(data, ["Nobody"], Subscription.sql("regoin = 'eu'")) == []
    assert len(doubts(data / "nowhere", ["Trade"], Subscription.tags("a, b"))) == 1
    with pytest.raises(StoreError, match="Nobody"):
        advise_filter(Subscription.tags("pay"), data, "Nobody")


def test_a_check_tells_more_than_a_start(data: Path) -> None:
    codes = [advice.code.value for advice in advise_filter(Subscription.sql("b <> 'x'"))]
    assert codes == ["absent-no-match"]
    with pytest.raises(FilterSyntaxError):
        advise_filter(Subscription.sql("b <>"))
