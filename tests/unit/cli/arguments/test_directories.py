"""Commands that read a directory, where a cluster is named: its disks here, or none, and no guess."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from support.harness.command_server import run_here

from rocketray.cli.doctor import doctor, health_facts
from rocketray.cli.nodes import logs
from rocketray.errors import NodeNotRunningError
from rocketray.runtime.files.home import Home, identity_of
from rocketray.runtime.process_logs.log_index import LogEntry, note_log

HERE = socket.gethostname()
FAR = Home("/srv/rocketray", "0b2e9d0e-9a35-4d1f-8d3f-6c7f0f1f9a11", "machine-b")


class Node:
    """A cluster as it answers: its disks, its problems, and the hosts of apps."""

    def __init__(self, homes: Sequence[Home], problems: Sequence[str] = ()) -> None:
        self.disks = SimpleNamespace(homes=lambda: {home.uuid: home for home in homes})
        self._problems = list(problems)

    def problems(self) -> list[str]:
        """Return the problems that the coordinator knows."""
        return self._problems

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run where no ./rocketray-data and no token is, and no JVM says its version."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ROCKETRAY_DATA", raising=False)
    monkeypatch.setattr(health_facts, "_java", lambda _: (21, "/jdk"))


def answer(
    monkeypatch: pytest.MonkeyPatch, node: Node | Exception, hosts: Sequence[Any] = ()
) -> None:
    def ask(_: Path, **__: object) -> Node:
        if isinstance(node, Exception):
            raise node
        return node

    monkeypatch.setattr(doctor, "ask", ask)
    monkeypatch.setattr(logs, "ask", ask)
    monkeypatch.setattr(logs, "apps_of", lambda _: SimpleNamespace(hosts=lambda _: list(hosts)))


def disk_here(path: Path) -> Home:
    return Home(str(path), identity_of(path), HERE)


def diagnosis(*options: str) -> dict[str, list[tuple[str, str]]]:
    """The levels and texts of the doctor's findings, by their check."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in run_here(*options, "doctor", "--json").out.splitlines():
        each = json.loads(line)
        found.setdefault(each["check"], []).append((each["level"], each["text"]))
    return found


@pytest.mark.parametrize("is_option", [True, False])
def test_the_doctor_checks_the_disk_of_this_machine_in_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_option: bool
) -> None:
    here = tmp_path / "srv"
    answer(monkeypatch, Node([disk_here(here), FAR], ["Ray: it asks for no token"]))
    if not is_option:
        monkeypatch.setenv("ROCKETRAY_CLUSTER", "orders")
    found = diagnosis(*(("--cluster", "orders") if is_option else ()))
    assert found["directory"] == [("ok", f"{here} is this user's")]
    [(_, disk)] = found["disk"]
    assert disk.startswith(f"{here}: ")
    assert found["clock"] == [("ok", "agrees with the files of the data directory")]
    assert found["node"] == [("error", "Ray: it asks for no token")]
    assert found["ray's access"][0][1] == "a Ray that a node starts asks for a token"


def test_the_doctor_says_that_a_machine_without_a_disk_of_the_cluster_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, Node([FAR]))
    found = diagnosis("--cluster", "orders")
    said = f"no disk of cluster 'orders' is on this machine, {HERE}; it has /srv/rocketray on machine-b"
    assert found["directory"] == [("ok", f"none is checked: {said}")]
    assert not {"disk", "file system", "clock"} & found.keys()
    assert found["node"] == [("ok", "cluster orders reports no problem")]


def test_the_doctor_guesses_no_directory_of_a_cluster_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, NodeNotRunningError("no Ray runs on this machine"))
    found = diagnosis("--cluster", "orders")
    [(level, text)] = found["directory"]
    assert (level, text.partition(":")[0]) == ("warning", "none is checked")
    assert found["node"] == [("error", "no Ray runs on this machine")]


def test_a_directory_that_is_named_is_checked_whatever_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, Node([FAR]))
    named = tmp_path / "named"
    identity_of(named)
    monkeypatch.setenv("ROCKETRAY_CLUSTER", "orders")
    monkeypatch.setenv("ROCKETRAY_DATA", str(named))
    assert diagnosis()["directory"] == [("ok", f"{named} is this user's")]


def test_the_logs_of_a_cluster_are_those_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its disk here, and of a host of an app, which has noted its log elsewhere."""
    here = tmp_path / "srv"
    home = disk_here(here)
    (here / "filter.log").write_text("of the filter\n")
    (tmp_path / "host.log").write_text("of the app\n")
    noted = LogEntry("filter", HERE, os.getpid(), 0, (str(here / "filter.log"),))
    note_log(here, noted)

    def host(name: str, machine: str, pid: int) -> object:
        files = (str(tmp_path / "host.log"),)
        status = SimpleNamespace(machine=machine, pid=pid, logs=files, version=None)
        return SimpleNamespace(name=name, status=status)

    silent = SimpleNamespace(name="app:ord:2", status=None)
    hosts = [host("app:ord:0", HERE, 1), host("app:ord:1", "machine-b", 1), silent]
    answer(monkeypatch, Node([home, FAR]), hosts)
    done = run_here("--cluster", "orders", "logs")
    assert done.out.splitlines() == ["filter │ of the filter", "ord:0  │ of the app"]
    answer(monkeypatch, Node([FAR]), hosts)  # a head without a disk
    assert run_here("--cluster", "orders", "logs", "ord").out == "ord:0 │ of the app\n"
    wrong = run_here("--cluster", "orders", "logs", "filter")
    assert "nothing called 'filter' has logged here, of cluster orders;" in wrong.err


def test_where_the_logs_of_a_cluster_are_is_said_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, Node([FAR]))
    done = run_here("--cluster", "orders", "logs")
    assert done.code == 1
    assert "it has /srv/rocketray on machine-b; and no host of an app runs here" in done.err
    assert "rocketray --cluster orders status --json names machines and files" in done.err
    answer(monkeypatch, NodeNotRunningError("no Ray runs on this machine"))
    done = run_here("--cluster", "orders", "logs")
    assert "no Ray runs on this machine; logs are read on their machine also without it" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("backup", "copy"),
        ("filter", "preview", "Trade", "a = 1"),
        ("filter", "diff", "T", "a", "b"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_reads_a_directory_takes_no_cluster_for_one(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    said = "reads a directory, and cluster orders names none: give --data DIR"
    assert said in run_here("--cluster", "orders", *words).err
    monkeypatch.setenv("ROCKETRAY_CLUSTER", "orders")
    assert said in run_here(*words).err
