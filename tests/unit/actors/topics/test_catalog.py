"""Topics and the identities of their shards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, InvalidNameError, StoreError, TopicNotFoundError
from rocketray.store.retention import KEEP_ALL, RetentionPolicy


def test_every_shard_has_its_own_store_host_for_ever() -> None:
    catalog = TopicCatalog().with_topic("A", 2).with_topic("B", 1)
    hosts = [host for topic in catalog.topics.values() for host in topic.store_hosts]
    gone = catalog.without_topic("A").without_deleted("A")
    again = gone.with_topic("A", 2).get("A").store_hosts
    assert len({*hosts, *again}) == 5
    assert catalog.shard_of_host(hosts[2]) == ("B", 0)
    assert catalog.shard_of_host(("10.9.9.9", 1)) is None


def test_a_topic_keeps_its_id_and_one_made_again_has_another(tmp_path: Path) -> None:
    first = TopicCatalog().with_topic("A", 1).with_topic("B", 1)
    topic_id = first.get("A").topic_id
    assert re.fullmatch("[0-9a-f]{32}", topic_id)
    changed = first.with_topic("A", 4).with_permission("A", 4).with_bitmaps("A", "on")
    changed.with_retention("A", RetentionPolicy(max_age_ms=1)).save(tmp_path)
    assert TopicCatalog.load(tmp_path).get("A").topic_id == topic_id
    again = first.without_topic("A").without_deleted("A").with_topic("A", 1)
    assert len({topic_id, first.get("B").topic_id, again.get("A").topic_id}) == 3


def test_it_says_of_each_queue_whether_it_was_made_once(tmp_path: Path) -> None:
    noted = TopicCatalog().with_topic("A", 3).with_topic("B", 1)
    noted = noted.with_made({"A": [2], "Gone": [0]}).with_made({"A": [0, 2]})
    assert noted.with_made({"A": [0]}) is noted
    noted.with_topic("A", 4).save(tmp_path)
    loaded = TopicCatalog.load(tmp_path)
    assert loaded.get("A").made == {0, 2}
    assert loaded.get("B").made == frozenset()
    again = loaded.without_topic("A").without_deleted("A").with_topic("A", 3)
    assert again.get("A").made == frozenset()


def test_a_topic_older_than_ids_has_one_that_does_not_change(tmp_path: Path) -> None:
    TopicCatalog().with_topic("A", 1).with_topic("B", 1).save(tmp_path)
    path = tmp_path / "config" / "topics.json"
    value = json.loads(path.read_text())
    for entry in value["topicConfigTable"].values():
        del entry["attributes"]["topic.id"]
    path.write_text(json.dumps(value))
    old = TopicCatalog.load(tmp_path)
    topic_id = old.get("A").topic_id
    assert TopicCatalog.load(tmp_path).get("A").topic_id == topic_id != old.get("B").topic_id
    old.with_topic("A", 3).save(tmp_path)
    assert TopicCatalog.load(tmp_path).get("A").topic_id == topic_id
    gone = old.without_topic("A").without_deleted("A")
    assert gone.with_topic("A", 1).get("A").topic_id != topic_id
    for written in (path, path.with_name("topics.json.bak")):
        written.write_text(path.read_text().replace(topic_id, "../etc"))
    with pytest.raises(StoreError, match="not 32 hexadecimal digits"):
        TopicCatalog.load(tmp_path)


def test_more_queues_keep_the_hosts_of_the_old_ones() -> None:
    small = TopicCatalog().with_topic("A", 1)
    large = small.with_topic("A", 3)
    assert large.get("A").store_hosts[:1] == small.get("A").store_hosts
    with pytest.raises(ConfigError, match="cannot be cut"):
        large.with_topic("A", 2)


def test_retention_is_of_a_new_topic_and_changes_only_when_told(tmp_path: Path) -> None:
    policy = RetentionPolicy(max_age_ms=1000, max_bytes=5)
    catalog = TopicCatalog().with_topic("A", 1, policy).with_topic("B", 1)
    assert (catalog.get("A").retention, catalog.get("B").retention) == (policy, KEEP_ALL)
    changed = catalog.with_permission("A", 4).with_topic("A", 2).with_retention("B", policy)
    assert (changed.get("A").retention, changed.get("A").perm) == (policy, 4)
    changed.save(tmp_path)
    assert TopicCatalog.load(tmp_path) == changed
    assert changed.with_retention("A", KEEP_ALL).get("A").retention == KEEP_ALL


def test_hosted_topics_are_so_by_name_or_when_asked_and_stay_so(tmp_path: Path) -> None:
    catalog = TopicCatalog().with_topic("Plain", 1).with_topic("Asked", 1, hosted=True)
    for name in ("%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        catalog = catalog.with_topic(name, 1)
    catalog.with_topic("Asked", 3).with_permission("%DLQ%g", 4).save(tmp_path)
    topics = TopicCatalog.load(tmp_path).topics
    assert [name for name, topic in topics.items() if not topic.hosted] == ["Plain"]


def test_names_are_checked() -> None:
    catalog = TopicCatalog().with_topic("Trade", 1)
    with pytest.raises(InvalidNameError, match="differs from the existing 'Trade' only in case"):
        catalog.with_topic("trade", 1)
    with pytest.raises(InvalidNameError, match="not allowed"):
        catalog.with_topic("../etc", 1)
    with pytest.raises(InvalidNameError, match="1 to 1024 queues"):
        catalog.with_topic("Other", 0)
    with pytest.raises(TopicNotFoundError, match="rocketray topics create Missing"):
        catalog.get("Missing")


def test_the_file_round_trips(tmp_path: Path) -> None:
    catalog = TopicCatalog().with_topic("A", 2).with_permission("A", 4)
    catalog.save(tmp_path)
    assert TopicCatalog.load(tmp_path) == catalog
    assert not catalog.get("A").writable
    assert TopicCatalog.load(tmp_path / "none") == TopicCatalog()


@pytest.mark.parametrize("damage", ["{half", '{"topicConfigTable": {"A": {"topicName": "A"}}}'])
def test_the_copy_stands_in_for_a_damaged_file_and_not_for_a_removed_one(
    tmp_path: Path, damage: str
) -> None:
    TopicCatalog().with_topic("A", 1).with_topic("B", 1).save(tmp_path)
    TopicCatalog().with_topic("A", 1).save(tmp_path)
    path = tmp_path / "config" / "topics.json"
    path.write_text(damage)
    assert list(TopicCatalog.load(tmp_path).topics) == ["A"]
    path.with_name("topics.json.bak").write_text(damage)
    with pytest.raises(StoreError, match=r"not valid JSON|not a topic"):
        TopicCatalog.load(tmp_path)
    TopicCatalog().with_topic("A", 1).save(tmp_path)
    path.unlink()
    assert TopicCatalog.load(tmp_path) == TopicCatalog()


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_messages_that_wait_for_their_time_have_no_retention(topic: str) -> None:
    catalog = TopicCatalog().with_topic(topic, 1)
    with pytest.raises(ConfigError, match="removes what it is done with"):
        catalog.with_retention(topic, RetentionPolicy(max_age_ms=1))
