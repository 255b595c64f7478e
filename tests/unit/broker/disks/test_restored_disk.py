"""A restored disk joins the coordinator's catalog if both agree on where each queue is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rocketray.broker.disks.restored_disk import check_places, unknown_queues
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError
from rocketray.runtime.files.home import Home

FAR = "00000000-0000-0000-0000-000000000002"
HOME = Home("/far", FAR, "there", cluster="copy", is_joined=True)


def with_trade() -> TopicCatalog:
    """Two queues on the coordinator's disk and two on the other one, all of them made."""
    catalog = TopicCatalog().with_topic("Trade", 4).with_made({"Trade": range(4)})
    return catalog.with_disk("Trade", 1, FAR).with_disk("Trade", 3, FAR)


TRADE = with_trade()
OTHER = TRADE.with_topic("New", 2).with_disk("New", 1, FAR)
LATER: dict[str, Callable[[TopicCatalog], TopicCatalog]] = {
    "nothing": lambda catalog: catalog,
    "a permission": lambda catalog: catalog.with_permission("Trade", 4),
    "a move between other disks": lambda catalog: catalog.with_disk("Trade", 0, HOME.uuid[::-1]),
    "a new topic": lambda _: OTHER,
    "a queue that never answered": lambda catalog: catalog.with_topic("Trade", 5).with_disk(
        "Trade", 4, FAR
    ),
}


@pytest.mark.parametrize("later", LATER)
def test_what_leaves_its_queues_where_they_are_fits(later: str) -> None:
    for catalog, kept in ((LATER[later](TRADE), TRADE), (TRADE, LATER[later](TRADE))):
        check_places(catalog, kept.of_disk(FAR), HOME)


@pytest.mark.parametrize(
    ("change", "queue"),
    [
        (lambda catalog: catalog.with_disk("Trade", 3, ""), "Trade/3"),
        (lambda catalog: catalog.with_disk("Trade", 0, FAR), "Trade/0"),
    ],
    ids=["away from it", "to it"],
)
def test_a_queue_that_was_moved_between_the_backups_is_named(
    change: Callable[[TopicCatalog], TopicCatalog], queue: str
) -> None:
    moved = change(TRADE)
    lacks, has = "by the backup of the first disk, and not by its", "by its own backup, and not by"
    for catalog, kept in ((TRADE, moved), (moved, TRADE)):
        is_lacking = catalog.get("Trade").disk_of(int(queue[-1])) == FAR
        with pytest.raises(ConfigError, match=f"{lacks if is_lacking else has} [a-z ]*: {queue}. "):
            check_places(catalog, kept.of_disk(FAR), HOME)


def test_a_topic_that_was_deleted_between_the_backups_is_named_until_it_is_deleted_here() -> None:
    without = TRADE.without_topic("Trade")
    with pytest.raises(ConfigError, match=r"not by its own: Trade/1, Trade/3\. Restore backups"):
        check_places(TRADE, without.of_disk(FAR), HOME)
    check_places(without, without.of_disk(FAR), HOME)


def test_queues_that_the_catalog_does_not_have_are_named_and_nothing_else() -> None:
    assert unknown_queues(OTHER, OTHER.of_disk(FAR), FAR) == []
    assert unknown_queues(TRADE, OTHER.of_disk(FAR), FAR) == ["New/1"]
    more = TRADE.with_topic("Trade", 5).with_disk("Trade", 4, FAR).of_disk(FAR)
    assert unknown_queues(TRADE, more, FAR) == ["Trade/4"]
    again = replace(TRADE, next_shard_number=9).with_topic("New", 2)
    assert unknown_queues(again, OTHER.of_disk(FAR), FAR) == ["New/1"], "another topic by that name"
    check_places(again, OTHER.of_disk(FAR), HOME)
