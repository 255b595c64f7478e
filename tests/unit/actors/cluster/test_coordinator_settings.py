"""What a standby finds in the register before it starts a coordinator, and what that begins with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.actors.cluster.coordinator_settings import CoordinatorSettings
from rocketray.actors.cluster.registered_documents import (
    RegisteredDocuments,
    RegisterOfStart,
    check_standby,
    has_coordinated,
    state_directory,
    take_over,
)
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.files.paths import filters_file


class Machines:
    """A first disk and a joined one, and their register of files."""

    def __init__(self, path: Path) -> None:
        (path / "register").mkdir()
        self.url = (path / "register").as_uri()
        for name in ("first", "joined"):
            (path / name).mkdir()
        first, joined = path / "first", path / "joined"
        self.first = Home(str(first), settle_identity(first), "one", "n1", "orders")
        self.joined = Home(
            *(str(joined), settle_identity(joined), "two", "n2", "orders"),
            is_joined=True,
            cluster_id=self.first.uuid,
        )
        self.settings = CoordinatorSettings(
            self.first, FilterRules(("shop.filters",), 50), {"index_entries": 7}, "shared"
        )

    def start_first(self, start_id: str = "a") -> RegisteredDocuments:
        documents = take_over(self.first, RegisterOfStart(self.url, start_id))
        self.settings.save(documents)
        return documents

    def start_standby(self, start_id: str = "b") -> RegisteredDocuments:
        return take_over(self.joined, RegisterOfStart(self.url, start_id))

    def check(self, cluster: str = "orders", cluster_id: str = "") -> None:
        check_standby(self.url, cluster, cluster_id)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


@pytest.mark.parametrize("queues_per_process", [None, 3, "shared"])
def test_settings_are_read_as_they_were_saved_and_saved_when_they_change(
    tmp_path: Path, machines: Machines, queues_per_process: int | None
) -> None:
    documents = FileDocuments(tmp_path)
    assert CoordinatorSettings.load(documents) is None
    settings = replace(machines.settings, queues_per_process=queues_per_process)
    settings.save(documents)
    assert CoordinatorSettings.load(documents) == settings
    path = tmp_path / "config" / "settings.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    settings.save(documents)
    assert before == (path.stat().st_mtime_ns, path.stat().st_ino)
    settings = replace(settings, rules=FilterRules(property_filter=False))
    settings.save(documents)
    assert CoordinatorSettings.load(documents) == settings


@pytest.mark.parametrize(
    ("content", "told"),
    [('{"version": 2}', "its version is 2"), ('{"version": 1, "home": {}}', "damaged")],
)
def test_other_settings_are_refused(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "config" / "settings.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(StoreError, match=told):
        CoordinatorSettings.load(FileDocuments(tmp_path))


def test_a_standby_has_what_the_first_disk_saved_and_gives_it_back(machines: Machines) -> None:
    first = machines.start_first()
    first.save("topics", {"version": 1})
    standby = machines.start_standby()
    assert CoordinatorSettings.load(standby) == machines.settings
    assert standby.load("topics", dict) == {"version": 1}
    kept = FileDocuments(state_directory(machines.joined))
    assert kept.load("topics", dict) == {"version": 1}
    own = Path(machines.joined.data) / "config" / "topics.json"
    assert not own.exists(), "that is the catalog of the disk"
    standby.save("topics", {"version": 2})
    assert machines.start_first("c").load("topics", dict) == {"version": 2}
    assert has_coordinated(Path(machines.first.data))
    assert not has_coordinated(Path(machines.joined.data))


def test_filters_that_another_coordinator_may_have_changed_are_forgotten(
    machines: Machines,
) -> None:
    """One may have changed, and back: bits of the other one would be taken for its own."""
    path = filters_file(Path(machines.first.data))
    machines.start_first("a")
    for again in ("a", "b"):  # Ray starts the coordinator again, and then the node is started
        path.write_text("{}")
        machines.start_first(again)
        assert path.exists(), "nobody else was there"
    machines.start_standby("s")
    machines.start_first("c")
    assert not path.exists()
    theirs = filters_file(state_directory(machines.joined))
    theirs.write_text("{}")
    machines.start_standby("t")
    assert not theirs.exists()


def test_a_standby_is_refused_without_the_state_of_its_cluster(machines: Machines) -> None:
    with pytest.raises(ConfigError, match="does not have the state of cluster 'orders': start the"):
        machines.check()
    with pytest.raises(ConfigError, match="does not have the state of cluster 'orders': start the"):
        machines.start_standby()
    documents = take_over(machines.first, RegisterOfStart(machines.url, "a"))
    with pytest.raises(ConfigError, match="does not have the state"):  # of an earlier release
        machines.check()
    machines.settings.save(documents)
    machines.check()
    machines.check(cluster_id=machines.first.uuid)
    for cluster, cluster_id in (("other", ""), ("orders", machines.joined.uuid)):
        with pytest.raises(ConfigError, match=f"which began on directory {machines.first.uuid}"):
            machines.check(cluster, cluster_id)
