"""``store recover`` on shards that lost their ``store.json``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode
from support.nodes.stores import FakeClock, message

from rocketray.base.config import StoreConfig
from rocketray.broker.shards.shard_process import SHARED_FILE_SIZES
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.files.store_settings import read_settings
from rocketray.store.message_store import MessageStore

BODIES = [b"body %d" % number for number in range(20)]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's data directory with two queues, both in use."""
    data = tmp_path_factory.mktemp("node") / "data"
    with LocalNode(data) as node, node.producer() as producer:
        node.topics.ensure("Trade", 2)
        for number, body in enumerate(BODIES):
            producer.send("Trade", body, tags="t", keys=("k",), queue_id=number % 2)
    return data


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "data")


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def bodies(data: Path) -> list[bytes]:
    """What a node on *data* serves."""
    with LocalNode(data) as node, node.producer() as producer:
        producer.send("Trade", b"new", queue_id=0)
    found = []
    for queue_id in (0, 1):
        directory = shard_directory(data, "Trade", queue_id)
        with MessageStore(directory, read_only=True, clock_ms=lambda: 0) as store:
            assert store.verify().problems == ()
            found += [one.body for one in store.reads.scan()]
    return found


@pytest.mark.parametrize("damage", ["lost", "damaged", "empty"])
@pytest.mark.parametrize("given", ["the shard", "the data directory"])
def test_settings_come_back_as_they_were(data: Path, damage: str, given: str) -> None:
    shard = shard_directory(data, "Trade", 1)
    settings = shard / "store.json"
    before, raw = read_settings(shard), settings.read_bytes()
    if damage == "lost":
        settings.unlink()
    else:
        settings.write_bytes(raw[:40] if damage == "damaged" else b"")
    done = run_here("store", "recover", shard if given == "the shard" else data)
    assert done.code == 0, done.err
    assert f"{shard}: store.json was written again" in done.out
    assert str(data / "config" / "topics.json") in done.out
    assert "commit_log_segment_bytes" in done.out
    assert read_settings(shard) == before
    assert settings.read_bytes() == raw
    kept = shard / "store.json.damaged"
    assert kept.exists() == (damage != "lost")
    assert sorted(bodies(data)) == sorted([*BODIES, b"new"])


def test_the_lost_settings_of_an_empty_shard_are_those_of_its_process(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("Empty", 1)
    catalog = TopicCatalog.load(tmp_path).topics["Empty"]
    shard = shard_directory(tmp_path, "Empty", 0)
    (shard / "store.json").unlink()
    [restored, recovered] = run_here("store", "recover", shard, "--json").lines()
    assert recovered["messages"] == 0
    sizes: dict[str, Any] = {} if catalog.processes else SHARED_FILE_SIZES
    assert read_settings(shard) == StoreConfig(store_host=catalog.store_hosts[0], **sizes)
    assert restored["settings"]["store_host"] == f"{catalog.store_hosts[0][0]}:10911"
    with LocalNode(tmp_path) as node, node.producer() as producer:
        producer.send("Empty", b"first")


def test_what_needs_the_settings_says_how_to_get_them_back(data: Path) -> None:
    shard = shard_directory(data, "Trade", 0)
    (shard / "store.json").unlink()
    for command in ("verify", "scan", "info"):
        done = run_here("store", command, data)
        assert done.code != 0
        assert f"rocketray store recover {shard}" in done.err


def test_records_of_another_store_are_refused_and_nothing_is_changed(data: Path) -> None:
    shard, other = (shard_directory(data, "Trade", queue_id) for queue_id in (0, 1))
    (shard / "store.json").unlink()
    shutil.rmtree(shard / "commitlog")
    shutil.copytree(other / "commitlog", shard / "commitlog")
    before = content(data)
    done = run_here("store", "recover", data)
    assert done.code != 0
    hosts = TopicCatalog.load(data).topics["Trade"].store_hosts
    assert f"have store host {hosts[1][0]}:10911 and not {hosts[0][0]}:10911" in done.err
    assert content(data) == before


def test_records_of_another_queue_are_refused(data: Path) -> None:
    path = data / "config" / "topics.json"
    shard, other = (shard_directory(data, "Trade", queue_id) for queue_id in (0, 1))
    hosts = TopicCatalog.load(data).topics["Trade"].store_hosts
    path.write_text(path.read_text().replace(hosts[0][0], hosts[1][0]))
    shutil.rmtree(shard)
    shutil.copytree(other, shard)
    (shard / "store.json").unlink()
    done = run_here("store", "recover", shard)
    assert done.code != 0
    assert "its records are those of queue Trade/1" in done.err


def test_elsewhere_the_store_host_has_to_be_given(data: Path, tmp_path: Path) -> None:
    shard = shard_directory(data, "Trade", 1)
    before = read_settings(shard)
    assert before is not None
    host = f"{before.store_host[0]}:10911"
    alone = shutil.copytree(shard, tmp_path / "alone")
    (alone / "store.json").unlink()
    files = content(alone)
    slots = ("--max-hash-slots", str(before.index_hash_slots))
    for options, reason in (
        ((), "is not in a node's data directory"),
        (("--store-host", "10.0.0.99:10911", *slots), f"give --store-host {host}"),
        (("--store-host", "here"), "is not ADDRESS:PORT"),
        (("--store-host", "x:1", *slots), "is not an IPv4 or IPv6 address"),
        (("--store-host", host, "--max-hash-slots", "7"), "cannot have 7 hash slots"),
    ):
        done = run_here("store", "recover", alone, *options)
        assert done.code != 0
        assert reason in done.err
        assert content(alone) == files
    assert run_here("store", "recover", alone, "--store-host", host, *slots).code == 0
    assert read_settings(alone) == before
    done = run_here("store", "recover", data, "--store-host", host)
    assert "is for one shard" in done.err


def test_a_queue_that_the_catalog_does_not_know_is_named(data: Path) -> None:
    shard = shard_directory(data, "Trade", 1)
    (shard / "store.json").write_text("{")
    path = data / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["Trade"]
    path.write_text(json.dumps(table))
    done = run_here("store", "recover", shard)
    assert done.code != 0
    assert f"{path} has no queue Trade/1" in done.err
    assert "--store-host" in done.err
    assert (shard / "store.json").read_text() == "{"


def test_settings_of_a_newer_version_are_left_alone(data: Path) -> None:
    shard = shard_directory(data, "Trade", 1)
    raw = (shard / "store.json").read_bytes().replace(b'"version": 2', b'"version": 3')
    (shard / "store.json").write_bytes(raw)
    done = run_here("store", "recover", shard)
    assert done.code != 0
    assert "its version is 3" in done.err
    assert (shard / "store.json").read_bytes() == raw


def test_a_shard_in_use_is_left_alone(data: Path) -> None:
    shard = shard_directory(data, "Trade", 1)
    with MessageStore(shard, clock_ms=lambda: 0):
        (shard / "store.json").unlink()
        done = run_here("store", "recover", shard)
        assert done.code != 0
        assert "is open for writing" in done.err
        assert not (shard / "store.json").exists()


def test_unknown_index_sizes_are_not_guessed(tmp_path: Path) -> None:
    store_host = "10.0.0.5:10911"
    config = StoreConfig(
        commit_log_segment_bytes=8192,
        index_hash_slots=50,
        index_entries=33,
        store_host=("10.0.0.5", 10911),
    )
    with MessageStore(tmp_path, config, clock_ms=FakeClock()) as store:
        store.put([message(number) for number in range(5)], 0)
    (tmp_path / "store.json").unlink()
    done = run_here("store", "recover", tmp_path, "--store-host", store_host)
    assert done.code != 0
    assert "give it with --max-hash-slots" in done.err
    options = ("--store-host", store_host, "--max-hash-slots", "50")
    assert run_here("store", "recover", tmp_path, *options).code == 0
    assert read_settings(tmp_path) == config
