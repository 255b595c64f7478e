"""The register of a cluster's disks: what it keeps, which disks answer, and where queues go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.broker.disks.disk_register import DiskRegister
from rocketray.broker.disks.disks_api import DiskReport
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home

SECOND = "00000000-0000-0000-0000-000000000002"


def registered(home: Home) -> DiskRegister:
    """The disks that are in the coordinator's files."""
    return DiskRegister(home, FileDocuments(Path(home.data)))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path), "00000000-0000-0000-0000-000000000001", "here", cluster="trade")


def second(home: Home) -> Home:
    return replace(home, data="/srv/rocketray", uuid=SECOND, machine="there", is_joined=True)


def report(incarnation: str, free: int = 10, zone: str = "") -> DiskReport:
    return DiskReport(incarnation, zone, free, 100)


def test_a_disk_that_joined_stays_and_the_latest_place_counts(home: Home) -> None:
    registered(home).add(second(home))
    kept = registered(home)
    assert kept.homes == {"": home, SECOND: second(home)}
    moved = replace(second(home), machine="elsewhere", ray_node="f" * 56)
    kept.add(moved)
    assert registered(home).homes[SECOND] == moved


def test_a_cluster_with_other_disks_keeps_its_name(home: Home) -> None:
    registered(home).add(second(home))
    with pytest.raises(ConfigError, match="of cluster 'trade', which 1 other disks joined"):
        registered(replace(home, cluster="other"))


@pytest.mark.parametrize(
    ("disks", "version"),
    [({SECOND: {"data": "/srv"}}, 1), ({}, 2), ([], 1)],
)
def test_a_file_that_is_no_register_is_refused(home: Home, disks: object, version: int) -> None:
    for name in ("disks.json", "disks.json.bak"):
        path = Path(home.data) / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"version": version, "cluster": "trade", "disks": disks}))
    with pytest.raises(StoreError, match=r"disks\.json"):
        registered(home)


def test_a_disk_starts_anew_with_its_first_report_and_with_each_other_incarnation(
    home: Home,
) -> None:
    register = registered(home)
    assert register.take_report(SECOND, report("a"))
    assert not register.take_report(SECOND, report("a"))
    assert register.take_report(SECOND, report("b"))
    assert not register.take_report(SECOND, None)
    assert SECOND not in register.reports
    assert register.take_report(SECOND, report("b")), "it was away in between"


def test_new_queues_go_to_disks_that_answer(home: Home) -> None:
    register = registered(home)
    register.add(second(home))
    assert register.spread((), 2) == ("", ""), "before the first report there is only its own"
    register.take_report("", report("a", free=10))
    register.take_report(SECOND, report("b", free=20))
    assert register.spread((), 3) == (SECOND, "", SECOND)
    register.take_report(SECOND, None)
    assert register.spread((SECOND,), 3) == (SECOND, "", "")


def test_a_drained_disk_gets_no_queues_until_that_ends_and_one_disk_is_left(home: Home) -> None:
    register = registered(home)
    register.add(second(home))
    for name in ("", SECOND):
        register.take_report(name, report("1"))
    register.set_draining(SECOND, draining=True)
    assert registered(home).draining == {SECOND}
    assert register.spread((), 4) == ("",) * 4
    with pytest.raises(ConfigError, match="no disk would be left"):
        register.set_draining("", draining=True)
    with pytest.raises(ConfigError, match="has no disk 'other'"):
        register.set_draining("other", draining=True)
    register.set_draining(SECOND, draining=False)
    assert {*register.spread((), 4)} == {"", SECOND}
    assert registered(home).draining == frozenset()


def test_a_restored_disk_is_awaited_until_it_joins(home: Home) -> None:
    register = registered(home)
    assert not register.awaits("")
    assert not register.awaits(SECOND)
    register.add(replace(second(home), machine=""))
    assert registered(home).awaits(SECOND)
    register.add(second(home))
    assert not register.awaits(SECOND)
