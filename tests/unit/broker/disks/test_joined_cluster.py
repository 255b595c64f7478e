"""A disk joins one cluster, for good, and none if it has topics of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.broker.disks.joined_cluster import JoinedCluster, note_joined, read_joined
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.files.home import Home

FIRST = Home("/srv/first", "00000000-0000-0000-0000-000000000001", "head", cluster="trade")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path), "00000000-0000-0000-0000-000000000002", "here", cluster="trade")


def test_a_disk_remembers_the_cluster_that_it_joined(home: Home, tmp_path: Path) -> None:
    assert read_joined(tmp_path) is None
    note_joined(home, FIRST)
    assert read_joined(tmp_path) == JoinedCluster("trade", FIRST.uuid)
    TopicCatalog().with_topic("Trade", 1).save(tmp_path)  # those that the cluster put there
    note_joined(home, FIRST)


def test_it_joins_no_other_cluster(home: Home, tmp_path: Path) -> None:
    note_joined(home, FIRST)
    for cluster in (replace(FIRST, cluster="other"), replace(FIRST, uuid=home.uuid)):
        with pytest.raises(ConfigError, match="joined another cluster 'trade'"):
            note_joined(replace(home, cluster=cluster.cluster), cluster)
    assert read_joined(tmp_path) == JoinedCluster("trade", FIRST.uuid)


def test_a_directory_with_topics_of_its_own_joins_none(home: Home, tmp_path: Path) -> None:
    TopicCatalog().with_topic("Trade", 1).save(tmp_path)
    with pytest.raises(ConfigError, match=r"has topics of its own \(Trade\), so it cannot join"):
        note_joined(home, FIRST)
    assert read_joined(tmp_path) is None


def test_a_damaged_record_is_no_leave_to_begin_anew(home: Home, tmp_path: Path) -> None:
    note_joined(home, FIRST)
    for path in (tmp_path / "config").glob("joined.json*"):
        path.write_text("{}")
    with pytest.raises(StoreError, match=r"joined\.json"):
        read_joined(tmp_path)
