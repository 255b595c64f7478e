from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from rocketray.broker.disks.joined_cluster import JoinedCluster, write_joined
from rocketray.cli.arguments import filter_choice
from rocketray.cli.arguments.filter_choice import FilterOptions, filter_in_files
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.testing import Broker

LARGE = FilterName("large")


def test_the_options_choose_one_filter() -> None:
    assert FilterOptions().chosen() == Subscription.tags("*")
    assert FilterOptions(filter_name=LARGE).chosen() == LARGE
    assert FilterOptions(sql="a = 1").chosen() == Subscription.sql("a = 1")
    path = "only.the.node:has_it"
    assert FilterOptions(where=path).chosen() == Subscription.where(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (FilterOptions("a", filter_name=LARGE), "leave out --tags, or leave out --filter"),
        (FilterOptions(sql="a = 1", where="m:f", filter_name=LARGE), "out --sql and --where"),
        (FilterOptions(filter_name=LARGE, dialect="rocketmq"), "leave out --dialect"),
        (FilterOptions(filter_name=LARGE, on_filter_error="skip"), "out --on-filter-error"),
        (FilterOptions("a", "a > 1"), "--tags and --sql exclude each other"),
        (FilterOptions("a", on_filter_error="skip"), "leave it out"),
        (FilterOptions("||"), "needs a tag"),
        (FilterOptions(sql="a >"), r"\^"),
        (FilterOptions(where="no path"), "'module:callable'"),
    ],
)
def test_a_wrong_choice_is_wrong_usage(options: FilterOptions, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said) as caught:
        options.chosen()
    assert caught.value.exit_code == 2


def test_a_disk_that_joined_asks_its_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = tmp_path / "joined"
    write_joined(joined, JoinedCluster("shop", "0" * 32))
    with Broker(tmp_path / "first") as broker:
        broker.topics.create("Trade", 1)
        broker.named_filters.save("Trade", "large", Subscription.tags("a"))
        monkeypatch.setattr(filter_choice, "ask", lambda _data: nullcontext(broker))
        for data in (joined, broker.data):
            assert filter_in_files(data, "Trade", LARGE).named == "large@1"
        assert filter_in_files(joined, "Trade", Subscription.tags("b")) == Subscription.tags("b")
