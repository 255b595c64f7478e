"""Topics and the identities of their shards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig, shard_of_host
from rocketray.broker.topics.placement import Placement
from rocketray.broker.topics.process_names import (
    SHARED_PROCESS,
    common_process,
    has_services,
    is_shared,
    process_of_topic,
)
from rocketray.errors import ConfigError, InvalidNameError, StoreError, TopicNotFoundError
from rocketray.runtime.calls.endpoint import on_disk
from rocketray.runtime.files.paths import config_directory
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

FAR = "7c0f5c9e-0000-4000-8000-000000000002"


def test_every_shard_has_its_own_store_host_for_ever() -> None:
    catalog = TopicCatalog().with_topic("A", 2).with_topic("B", 1)
    hosts = [host for topic in catalog.topics.values() for host in topic.store_hosts]
    gone = catalog.without_topic("A").without_deleted("A")
    again = gone.with_topic("A", 2).get("A").store_hosts
    assert len({*hosts, *again}) == 5
    assert shard_of_host(catalog.topics, hosts[2]) == ("B", 0)
    assert shard_of_host(catalog.topics, ("10.9.9.9", 1)) is None


def test_the_last_shard_number_is_given_and_then_the_error_says_that_none_comes_back() -> None:
    last = TopicCatalog(next_shard_number=(1 << 24) - 2).with_topic("A", 2)
    assert [host for host, _ in last.get("A").store_hosts] == ["10.255.255.254", "10.255.255.255"]
    assert last.with_topic("A", 2) == last
    said = "topic 'B' needs 1 more shard numbers, and 0 of the 16777215 of this cluster are left"
    for used in (last, last.without_topic("A").without_deleted("A")):
        with pytest.raises(ConfigError, match=said):
            used.with_topic("B", 1)
    with pytest.raises(ConfigError, match=r"needs 3 more shard numbers, and 2 of .*fewer queues"):
        TopicCatalog(next_shard_number=(1 << 24) - 2).with_topic("A", 3)


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


def test_an_ack_is_of_the_topic_or_else_of_the_node(tmp_path: Path) -> None:
    catalog = TopicCatalog().with_topic("Own", 1, ack="memory").with_node_ack("disk")
    catalog = catalog.with_topic("Other", 1).with_topic("Own", 2, ack="disk")
    catalog.save(tmp_path)
    loaded = TopicCatalog.load(tmp_path)
    assert loaded == catalog
    assert (loaded.get("Own").ack, loaded.get("Own").default_ack) == ("memory", "memory")
    assert (loaded.get("Other").ack, loaded.get("Other").default_ack) == (None, "disk")
    changed = loaded.with_ack("Own", None).with_ack("Other", "disk").with_node_ack("memory")
    assert changed.get("Own").default_ack == "memory"
    assert changed.get("Other").default_ack == "disk"
    path = tmp_path / "config" / "topics.json"
    value = json.loads(path.read_text())
    del value["ackMode"]
    path.write_text(json.dumps(value))
    assert TopicCatalog.load(tmp_path).get("Other").default_ack == "memory", "an older release's"


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
    with pytest.raises(ConfigError, match="cannot be reduced"):
        large.with_topic("A", 2)


def test_retention_is_of_a_new_topic_and_changes_only_when_told(tmp_path: Path) -> None:
    policy = RetentionPolicy(max_age_ms=1000, max_bytes=5)
    catalog = TopicCatalog().with_topic("A", 1, retention=policy).with_topic("B", 1)
    assert (catalog.get("A").retention, catalog.get("B").retention) == (policy, KEEP_ALL)
    changed = catalog.with_permission("A", 4).with_topic("A", 2).with_retention("B", policy)
    assert (changed.get("A").retention, changed.get("A").perm) == (policy, 4)
    changed.save(tmp_path)
    assert TopicCatalog.load(tmp_path) == changed
    assert changed.with_retention("A", KEEP_ALL).get("A").retention == KEEP_ALL


def test_internal_topics_are_so_by_name_or_when_asked_and_stay_so(tmp_path: Path) -> None:
    catalog = TopicCatalog().with_topic("Plain", 1).with_topic("Asked", 1, internal=True)
    for name in ("%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        catalog = catalog.with_topic(name, 1)
    catalog.with_topic("Asked", 3).with_permission("%DLQ%g", 4).save(tmp_path)
    topics = TopicCatalog.load(tmp_path).topics
    assert [name for name, topic in topics.items() if not topic.internal] == ["Plain"]
    assert topics["Plain"].process_of(0) == "Plain:0"
    assert {*topics["Asked"].by_process(), *topics["%DLQ%g"].by_process()} == {SHARED_PROCESS}


def test_the_process_of_a_queue_is_kept_and_stays_when_the_topic_grows(tmp_path: Path) -> None:
    catalog = TopicCatalog().with_topic("Trade", 3, queues_per_process=2)
    catalog = catalog.with_topic("Small", 2, queues_per_process="shared")
    catalog.with_topic("Wide", 4, queues_per_process=2, placement=Placement(cores=64)).save(
        tmp_path
    )
    catalog = TopicCatalog.load(tmp_path)
    assert catalog.get("Trade").by_process() == {"Trade:0": [0, 2], "Trade:1": [1]}
    assert catalog.get("Small").by_process() == {SHARED_PROCESS: [0, 1]}
    assert not catalog.get("Small").internal
    assert catalog.get("Wide").by_process() == {"Wide:0": [0, 2], "Wide:1": [1, 3]}
    for name, queues in (("Trade", 5), ("Small", 3), ("Wide", 6)):
        catalog = catalog.with_topic(name, queues, placement=Placement("shared", cores=4))
    catalog.save(tmp_path)
    catalog = TopicCatalog.load(tmp_path)
    assert catalog.get("Trade").processes == (0, 1, 0, 2, 1)
    assert catalog.get("Small").processes == ()
    assert catalog.get("Wide").processes == (0, 1, 0, 1, 2, 2)
    assert catalog.get("Wide").by_process([0, 5]) == {"Wide:0": [0], "Wide:2": [5]}


def test_topics_that_ask_for_nothing_share_the_processes_of_their_disk(tmp_path: Path) -> None:
    two_cores = Placement(cores=2)
    catalog = TopicCatalog()
    for name, queues in (("One", 1), ("Two", 2), ("Three", 3)):
        catalog = catalog.with_topic(name, queues, two_cores)
    catalog = catalog.with_topic("Own", 2, two_cores, queues_per_process=1)
    catalog = catalog.with_topic("Later", 1, two_cores).with_topic("%RETRY%g", 1, two_cores)
    catalog.with_topic("One", 2, Placement(1, cores=2)).save(tmp_path)
    catalog = TopicCatalog.load(tmp_path)
    assert {name: topic.by_process() for name, topic in catalog.topics.items()} == {
        "One": {"common-0": [0], "common-1": [1]},
        "Two": {"common-1": [0], "common-0": [1]},
        "Three": {"common-1": [0, 2], "common-0": [1]},
        "Own": {"Own:0": [0], "Own:1": [1]},
        "Later": {"common-0": [0]},
        "%RETRY%g": {SHARED_PROCESS: [0]},
    }
    moved = catalog.with_disk("Two", 1, FAR)
    assert moved.get("Two").process_of(1) == f"common-0@{FAR}"
    assert moved.with_topic("New", 1, two_cores).get("New").process_of(0) == "common-0"


def test_processes_of_several_topics_are_known_by_their_names() -> None:
    of_many = [SHARED_PROCESS, common_process(0)]
    of_many += [on_disk(name, FAR) for name in of_many]
    of_one = [process_of_topic(name, 0) for name in ("T", SHARED_PROCESS, common_process(0))]
    of_one += [on_disk(name, FAR) for name in of_one]
    assert [is_shared(name) for name in of_many + of_one] == [True] * 4 + [False] * 6
    services = [name for name in of_many + of_one if has_services(name)]
    assert services == [SHARED_PROCESS, on_disk(SHARED_PROCESS, FAR)]


def test_a_directory_that_does_not_say_has_a_process_for_each_queue(tmp_path: Path) -> None:
    placement = Placement(3)
    catalog = TopicCatalog().with_topic("Trade", 3, placement=placement).with_topic("%RETRY%g", 2)
    catalog.save(tmp_path)
    path = config_directory(tmp_path) / "topics.json"
    content = json.loads(path.read_bytes())
    for entry in content["topicConfigTable"].values():
        del entry["attributes"]["queues.processes"]
    path.write_text(json.dumps(content))
    catalog = TopicCatalog.load(tmp_path)
    assert catalog.get("Trade").by_process() == {f"Trade:{each}": [each] for each in range(3)}
    assert catalog.get("%RETRY%g").by_process() == {SHARED_PROCESS: [0, 1]}


@pytest.mark.parametrize("processes", ["0", "0,1,2", "0,-1", "a,b"])
def test_processes_that_are_none_are_refused(processes: str) -> None:
    value = TopicCatalog().with_topic("Trade", 2).get("Trade").to_json()
    value["attributes"]["queues.processes"] = processes
    with pytest.raises(ConfigError, match=r"topics\.json"):
        TopicConfig.from_json(value)


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


@pytest.mark.parametrize("name", ["Trad", "trade", "Trades"])
def test_the_topic_that_was_meant_is_named(name: str) -> None:
    catalog = TopicCatalog().with_topic("Trade", 1).with_topic("Trade-replies", 1, internal=True)
    with pytest.raises(TopicNotFoundError, match="did you mean 'Trade'"):
        catalog.get(name)
    with pytest.raises(TopicNotFoundError, match="does not exist; create it with"):
        catalog.get("Trade-reply")


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
    with pytest.raises(ConfigError, match="only the node removes them"):
        catalog.with_retention(topic, RetentionPolicy(max_age_ms=1))
