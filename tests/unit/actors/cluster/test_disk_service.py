"""Disks that do not answer, and restored disks that join for the first time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.disk_service import DiskService
from rocketray.actors.cluster.topic_service import TopicService
from rocketray.base.system_topics import HALF_TOPIC
from rocketray.broker.disks.disk_register import DiskRegister
from rocketray.broker.disks.disks_api import DiskReport
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.errors import ConfigError
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home

FAR = "00000000-0000-0000-0000-000000000002"
STANDBY = Home("/standby", FAR, "there", is_joined=True)


def registered(home: Home) -> DiskRegister:
    """The disks that are in the coordinator's files."""
    return DiskRegister(home, FileDocuments(Path(home.data)))


class SilentDisks:
    """The disks of a cluster, of which none but the first one answers."""

    def __init__(self, data: Path) -> None:
        uuid = "00000000-0000-0000-0000-000000000001"
        self.register = registered(Home(str(data), uuid, "here", "n1", "orders"))
        self.register.add(Home("/far", FAR, "there", "n2", "orders", is_joined=True))
        self.register.take_report("", DiskReport("i", "", 1, 1))

    def look(self, _: str) -> list[str]:
        return []

    def keep_catalog(self, *_: object) -> None:
        """Do nothing: no disk is there."""


def service_of(disks: Any, tmp_path: Path) -> tuple[DiskService, ClusterState]:
    """The service for *disks*, on all of which new queues are placed in turn."""
    (tmp_path / "config").mkdir(exist_ok=True)
    placement = Placement(1, spread=lambda _, queues: (FAR,) * queues, disks=lambda: ("", FAR))
    state = ClusterState(tmp_path, FilterRules(), lambda: 0, lambda: 0, placement)
    nothing: Any = None
    topics = TopicService(state, nothing)
    return DiskService(disks, state, topics, FilterRules(), nothing, place=STANDBY), state


def test_the_first_disk_is_a_problem_while_the_coordinator_runs_elsewhere(tmp_path: Path) -> None:
    disks: Any = SilentDisks(tmp_path)
    disks.register.set_draining(FAR, draining=True)
    service, state = service_of(disks, tmp_path)
    disks.register.take_report("", None)
    service.look()
    (said,) = state.problems.lines()
    assert said.startswith(f"the first disk, {tmp_path} on here, does not answer; its 0 queues")
    assert "the coordinator runs on /standby of there, whose standby took it over at 20" in said
    assert (
        f"rocketray start --cluster orders --register URL --ray-address HOST:PORT --data {tmp_path}"
        in said
    )
    disks.register.take_report("", DiskReport("i", "", 1, 1))
    service.look()
    assert state.problems.lines() == []


def test_a_disk_that_was_drained_may_stay_away_and_one_with_queues_is_a_problem(
    tmp_path: Path,
) -> None:
    disks: Any = SilentDisks(tmp_path)
    service, state = service_of(disks, tmp_path)
    service.look()
    (said,) = state.problems.lines()
    assert "there, does not answer; its 0 queues are unavailable" in said
    service.set_draining(FAR, True)
    service.look()
    assert state.problems.lines() == []
    state.topics.create(HALF_TOPIC, 1)  # its queue stays; the operator waits until it is done
    service.look()
    assert state.problems.lines() == []
    state.topics.create("T", 2)
    service.look()
    (said,) = state.problems.lines()
    assert "its 3 queues are unavailable" in said
    assert registered(disks.register.homes[""]).draining == {FAR}


def test_a_restored_disk_joins_the_first_time_only_if_it_fits_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    disks: Any = SilentDisks(tmp_path)
    joining = disks.register.homes[FAR]
    restored = replace(joining, data="/original", machine="")
    disks.register.add(restored)
    service, state = service_of(disks, tmp_path)
    state.topics.create("T", 2)
    state.topics.note_made({"T": range(2)})
    catalog = state.topics.catalog
    with pytest.raises(ConfigError, match=r"and not by its own: T/1\. Restore backups"):
        service.join(joining, catalog.with_disk("T", 1, "").of_disk(FAR))
    assert disks.register.homes[FAR] == restored
    later = catalog.with_topic("Later", 2, Placement(1, spread=lambda *_: (FAR, "")))
    service.join(joining, later.of_disk(FAR))
    assert disks.register.homes[FAR] == joining
    [said] = [line for line in state.problems.lines() if "Later" in line]
    assert "does not have: Later/0; they are not used: restore a later backup" in said
    reused = {*later.get("Later").store_hosts} & {*state.topics.create("Later", 2).store_hosts}
    assert not reused, "a new topic of that name would begin with the messages of the old one"
    service.join(joining, TopicCatalog())  # one that was away may have an old catalog


def test_a_fetch_service_that_does_not_listen_is_a_problem_until_it_does(tmp_path: Path) -> None:
    disks: Any = SilentDisks(tmp_path)
    service, state = service_of(disks, tmp_path)
    report = DiskReport("one", "", 1000, 1000, "cannot listen on port 8081; free the port")
    for disk, said in ((FAR, f"of disk {FAR}, /far on there: cannot listen"), ("", ": cannot")):
        other = "" if disk else FAR
        disks.register.take_report(other, replace(report, unserved=""))
        disks.register.take_report(disk, report)
        service.look()
        (line,) = state.problems.lines()
        assert line.startswith("members and Spark on other machines get no messages of disk ")
        assert said in line
        disks.register.take_report(disk, replace(report, unserved=""))
        service.look()
        assert state.problems.lines() == []


def test_a_full_disk_is_a_problem_until_it_has_room(tmp_path: Path) -> None:
    disks: Any = SilentDisks(tmp_path)
    service, state = service_of(disks, tmp_path)

    def lines(far_free: int, own_free: int) -> list[str]:
        for disk, free in ((FAR, far_free), ("", own_free)):
            disks.register.take_report(disk, DiskReport("one", "", free, 1000))
        service.look()
        return state.problems.lines()

    assert lines(101, 101) == []
    (said,) = lines(99, 101)
    assert said.startswith(f"disk {FAR}, /far on there, is 90 % full; its queues refuse messages")
    (said,) = lines(101, 0)
    own = disks.register.homes[""].uuid
    assert said.startswith(f"disk {own}, {tmp_path} on here, is 100 % full; its queues refuse")
    assert lines(1000, 1000) == []
