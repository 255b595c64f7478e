from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer

from rocketray.broker.disks.joined_cluster import JoinedCluster, write_joined
from rocketray.cli.arguments import filter_choice
from rocketray.cli.arguments.filter_choice import FilterOptions, filter_in_files
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.testing import Broker

LARGE = FilterName("large")


def test_a_name_is_chosen_alone() -> None:
    assert FilterOptions(filter_name=LARGE).chosen() == LARGE
    assert FilterOptions(sql="a = 1").chosen() == Subscription.sql("a = 1")
    assert FilterOptions().chosen() == Subscription.tags("*")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tags": "a"}, "leave out --tags"),
        ({"sql": "a = 1", "where": "m:f"}, "leave out --sql and --where"),
        ({"dialect": "rocketmq"}, "leave out --dialect"),
        ({"on_filter_error": "skip"}, "leave out --on-filter-error"),
    ],
)
def test_more_beside_a_name_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        FilterOptions(filter_name=LARGE, **options).chosen()


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
