"""A coordinator whose documents are in a register: where it continues, and when it stops."""

from __future__ import annotations

import os
import shutil
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support.nodes.register_servers import BUCKET, etcd_server, s3_server, s3_variables

from rocketray.actors.cluster import registered_documents
from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.registered_documents import (
    RegisteredDocuments,
    RegisterOfStart,
    check_register,
    take_over,
    taker_of,
)
from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.restore import restore
from rocketray.broker.disks.disk_register import DiskRegister
from rocketray.broker.disks.joined_cluster import note_joined
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import catalog_json
from rocketray.errors import (
    ConfigError,
    RegisterUnavailableError,
    ShardUnavailableError,
    SupersededError,
)
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.register.file_register import FileRegister

NUMBERS = iter(range(1, 1_000_000))
JOINED = "00000000-0000-0000-0000-000000000002"


def beat(*held: int, group: str = "g", **commits: int) -> Heartbeat:
    offsets = {int(queue[1:]): offset for queue, offset in commits.items()}
    pay = Subscription.tags("pay")
    number = next(NUMBERS)
    return Heartbeat(group, "T", pay, "a", "i", frozenset(held), offsets, number=number)


class Fleet:
    """Directories that use one register of files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "register").mkdir()
        self.url = (path / "register").as_uri()

    def home(self, name: str, cluster: str = "c") -> Home:
        data = self.path / name
        data.mkdir(exist_ok=True)
        return Home(str(data), settle_identity(data), name, cluster=cluster)

    def check(self, name: str, *, url: str | None = "", cluster: str = "c") -> str:
        home = self.home(name, cluster)
        return check_register(Path(home.data), self.url if url == "" else url, cluster, home.uuid)

    def take_over(self, name: str, start_id: str | None = None) -> RegisteredDocuments:
        return take_over(self.home(name), RegisterOfStart(self.url, start_id or uuid.uuid4().hex))

    def state(self, name: str) -> ClusterState:
        """The state of a coordinator that starts on a directory."""
        return self.opened(name, self.take_over(name))

    def opened(self, name: str, documents: Any) -> ClusterState:
        data = self.path / name
        return ClusterState(data, FilterRules(), lambda: 5, documents=documents)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def read_to_seven(state: ClusterState) -> None:
    """A topic, and a group that has come to 7 in its first queue."""
    state.topics.create("T", 2)
    state.heartbeat(beat())
    state.heartbeat(beat(0, 1, q0=7))
    state.save()


def content(state: ClusterState) -> object:
    assert state.problems.lines() == []
    return catalog_json(state.topics.catalog), state.registry.to_json()


def test_an_empty_directory_continues_with_all_of_the_register(fleet: Fleet) -> None:
    first = fleet.state("one")
    disks = DiskRegister(fleet.home("one"), first.documents)
    joined = Home("/srv", JOINED, "far", cluster="c", is_joined=True)
    disks.add(joined)
    disks.set_draining(JOINED, draining=True)
    read_to_seven(first)
    shutil.rmtree(fleet.path / "one")
    second = fleet.state("two")
    assert content(second) == content(first)
    kept = DiskRegister(fleet.home("two"), second.documents)
    assert kept.homes == {"": fleet.home("two"), JOINED: joined}
    assert kept.draining == {JOINED}
    copies = FileDocuments(fleet.path / "two")
    for name in ("topics", "groups", "disks"):
        assert copies.load(name, dict) == second.documents.load(name, dict)


def test_a_joined_disk_accepts_the_next_directory_of_its_cluster_and_no_other_one(
    fleet: Fleet,
) -> None:
    first, far = fleet.home("one"), fleet.path / "far"
    far.mkdir()
    disk = Home(str(far), JOINED, "far", cluster="c", is_joined=True)
    assert fleet.check("one") == first.uuid
    note_joined(disk, first)
    fleet.take_over("one")
    second = fleet.home("two")
    assert fleet.check("two") == first.uuid != second.uuid
    note_joined(disk, Home(second.data, second.uuid, "two", cluster="c", cluster_id=first.uuid))
    with pytest.raises(ConfigError, match="joined another cluster 'c'"):
        note_joined(disk, second)


def test_the_first_use_carries_the_files_over_and_keeps_the_id(fleet: Fleet) -> None:
    home = fleet.home("one")
    plain = fleet.opened("one", None)
    read_to_seven(plain)
    disks = DiskRegister(home, plain.documents)
    disks.add(Home("/srv", JOINED, "far", cluster="c", is_joined=True))
    shared = fleet.state("one")
    assert content(shared) == content(plain)
    assert DiskRegister(home, shared.documents).homes == disks.homes
    assert fleet.check("one") == home.uuid
    assert fleet.check("two") == home.uuid


@pytest.mark.parametrize("count", range(4))
def test_an_interrupted_first_use_is_repeated_on_the_same_directory_only(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    plain = fleet.opened("one", None)
    read_to_seven(plain)
    plain.documents.save("moves", {"version": 1, "moves": []})
    save = RegisteredDocuments.save
    saved: list[str] = []

    def dies(self: RegisteredDocuments, name: str, *rest: Any, **options: Any) -> None:
        if len(saved) == count:
            raise KeyboardInterrupt
        saved.append(name)
        save(self, name, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(RegisteredDocuments, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            fleet.take_over("one")
    with pytest.raises(ConfigError, match=f"--register {fleet.url}"):
        fleet.check("one", url=None)
    if saved:
        with pytest.raises(ConfigError, match="only a part of a cluster's state"):
            fleet.check("two")
    assert content(fleet.state("one")) == content(plain)


def test_a_directory_says_which_register_it_needs(fleet: Fleet) -> None:
    fleet.take_over("one")
    with pytest.raises(ConfigError, match=f"old copy of it: start it with --register {fleet.url}$"):
        fleet.check("one", url=None)
    (fleet.path / "other").mkdir()
    other = (fleet.path / "other").as_uri()
    with pytest.raises(ConfigError, match=f"--register {fleet.url}, not --register {other}; if"):
        fleet.check("one", url=other)
    assert fleet.check("one") == fleet.check("one")
    assert not [*(fleet.path / "other").iterdir()]


def test_a_directory_with_its_own_topics_is_refused_and_a_register_of_another_cluster(
    fleet: Fleet,
) -> None:
    fleet.take_over("one")
    keys = FileRegister(fleet.path / "register").names("")
    fleet.home("two")
    read_to_seven(fleet.opened("two", None))
    with pytest.raises(
        ConfigError,
        match=r"two has state of its own \(topics T, groups g\)",
    ):
        fleet.take_over("two")
    with pytest.raises(ConfigError, match="cluster 'c', not of 'd'; start with --cluster c"):
        fleet.check("three", cluster="d")
    assert FileRegister(fleet.path / "register").names("") == keys, "nothing was taken over"
    assert not (fleet.path / "two/config/register.json").exists()


def test_a_register_that_is_empty_again_is_refused(fleet: Fleet) -> None:
    """Its file system is not mounted."""
    plain = fleet.opened("one", None)
    read_to_seven(plain)
    fleet.take_over("one")
    (fleet.path / "register").rename(fleet.path / "mounted")
    (fleet.path / "register").mkdir()
    with pytest.raises(ConfigError, match="is empty, and had the state of this cluster: mount"):
        fleet.take_over("one")
    assert not [*(fleet.path / "register").iterdir()]
    (fleet.path / "one/config/register.json").unlink()
    assert content(fleet.state("one")) == content(plain)


def changes(state: ClusterState) -> dict[str, Callable[[], object]]:
    """Every kind of call that saves."""

    def commit() -> None:
        state.heartbeat(beat(0, 1, q0=9))
        state.save()

    return {
        "create": lambda: state.topics.create("U", 1),
        "delete": lambda: state.delete_topic("T"),
        "beat": lambda: state.heartbeat(beat(group="h")),
        "commit": commit,
        "leave": lambda: state.leave(beat(q0=8)),
        "move": lambda: state.administration.move_offsets("g", "T", {0: 1}),
        "stop": state.stop,
    }


@pytest.mark.parametrize("name", ["create", "delete", "beat", "commit", "leave", "move", "stop"])
def test_a_coordinator_that_was_superseded_saves_nothing_more(fleet: Fleet, name: str) -> None:
    documents = fleet.take_over("one")
    first = fleet.opened("one", documents)
    read_to_seven(first)
    second = fleet.state("two")
    before = content(fleet.opened("two", second.documents))
    documents.check()
    with pytest.raises(SupersededError, match="another coordinator has taken over"):
        changes(first)[name]()
    assert documents.superseded.is_set()
    for change in (*changes(first).values(), documents.check, documents.look):
        with pytest.raises(SupersededError):
            change()
    assert content(fleet.opened("two", second.documents)) == before
    second.topics.create("V", 1)


def test_a_coordinator_that_is_started_again_takes_over_from_its_former_process_alone(
    fleet: Fleet,
) -> None:
    fleet.take_over("one", "first")
    documents = fleet.take_over("one", "first")
    documents.save("topics", {"version": 1})
    fleet.take_over("two", "second")
    for _ in range(2):
        with pytest.raises(SupersededError, match="another coordinator has taken over"):
            fleet.take_over("one", "first")
    fleet.take_over("two", "second").look()
    fleet.take_over("one", "third").look()  # its operator has started the node again


def test_the_register_tells_who_took_a_start_over_and_nobody_before_the_seal(fleet: Fleet) -> None:
    ours = RegisterOfStart(fleet.url, "ours")
    documents = fleet.take_over("one", "ours")
    assert taker_of(ours) is None
    fleet.take_over("one", "ours").save("topics", {"version": 1})
    assert taker_of(ours) is None, "Ray started the coordinator again"
    documents = fleet.take_over("one", "ours")
    fleet.take_over("two", "theirs")
    taker = taker_of(ours)
    assert taker is not None
    assert (taker.start_id, taker.home) == ("theirs", replace(fleet.home("two"), cluster="default"))
    with pytest.raises(SupersededError, match=f"it runs on {fleet.path}/two of two and saved"):
        documents.look()
    assert documents.end().taker == f"{fleet.path}/two of two"


def test_an_idle_coordinator_finds_out_by_looking(fleet: Fleet) -> None:
    documents = fleet.take_over("one")
    documents.look()
    fleet.take_over("two")
    with pytest.raises(SupersededError):
        documents.look()
    with pytest.raises(SupersededError, match=fleet.url):
        documents.check()


class Failing:
    """A register of files that fails as told, and counts the calls."""

    def __init__(self, path: Path) -> None:
        self._register = FileRegister(path)
        self.address = self._register.address
        self.fails = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._register, name)

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.fails:
                raise RegisterUnavailableError(self.address, "no route to it")
            return method(*arguments)

        return call


@pytest.fixture
def failing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Failing:
    register = Failing(fleet.path / "register")
    monkeypatch.setattr(registered_documents, "open_register", lambda _: register)
    return register


def test_while_the_register_is_unavailable_nothing_is_acknowledged_that_is_not_saved(
    fleet: Fleet, failing: Failing
) -> None:
    documents = fleet.take_over("one")
    state = fleet.opened("one", documents)
    read_to_seven(state)
    state.heartbeat(beat(group="h"))
    state.heartbeat(beat(0, 1, group="h"))
    failing.fails = True
    assert state.heartbeat(beat(0, 1, q0=8)).granted == {0: 8, 1: -1}, "a commit waits"
    for change, error in (
        (lambda: state.topics.create("U", 1), RegisterUnavailableError),
        (lambda: state.heartbeat(beat(group="new")), ShardUnavailableError),  # for its member
        (lambda: state.heartbeat(beat(group="new")), ShardUnavailableError),
        (state.save, RegisterUnavailableError),
    ):
        with pytest.raises(error, match="no route to it; check that it runs"):
            change()
    assert "U" not in state.topics.catalog.topics
    with pytest.raises(RegisterUnavailableError):
        documents.look()
    assert state.heartbeat(beat(0, 1, q0=9)).granted[0] == 9, "another group goes on"
    failing.fails = False
    with pytest.raises(RegisterUnavailableError):
        state.save()  # until it is known to be back, nothing waits for it
    documents.look()
    state.save()
    registry = fleet.state("two").registry
    assert registry.offsets.of("g", "T") == {0: 9}
    assert {group for group, *_ in registry.subscriptions} == {"g", "h", "new"}


def test_after_one_error_no_call_waits_for_the_register(fleet: Fleet, failing: Failing) -> None:
    documents = fleet.take_over("one")
    state = fleet.opened("one", documents)
    failing.fails = True
    with pytest.raises(RegisterUnavailableError):
        state.topics.create("T", 1)
    calls = failing.calls
    for _ in range(10):
        with pytest.raises(RegisterUnavailableError):
            state.topics.create("T", 1)
    assert failing.calls == calls


def test_a_coordinator_does_not_start_without_its_register(fleet: Fleet, failing: Failing) -> None:
    fleet.take_over("one")
    failing.fails = True
    with pytest.raises(RegisterUnavailableError, match=fleet.url):
        fleet.check("one")
    assert fleet.check("two", url=None) == fleet.home("two").uuid


def test_a_copy_that_failed_is_made_up_for_and_never_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = fleet.take_over("one")
    state = fleet.opened("one", documents)
    copies = FileDocuments(fleet.path / "one")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(FileDocuments, "save", full)
        state.topics.create("T", 1)
        documents.look()
    assert copies.load("topics", dict) is None
    documents.look()
    assert copies.load("topics", dict) == catalog_json(state.topics.catalog)
    copies.save("topics", {"topicConfigTable": {}})
    assert [*fleet.state("one").topics.catalog.topics] == ["T"]
    assert copies.load("topics", dict) == catalog_json(state.topics.catalog)


def test_a_backup_is_restored_with_the_copies_and_needs_no_register(fleet: Fleet) -> None:
    state = fleet.state("one")
    read_to_seven(state)
    back_up(fleet.path / "one", fleet.path / "backup", clock_ms=lambda: 5)
    uuid, _ = restore(fleet.path / "backup", fleet.path / "two", clock_ms=lambda: 5, cluster="d")
    assert fleet.check("two", url=None, cluster="d") == uuid
    restored = fleet.opened("two", None)
    assert content(restored) == content(state)
    with pytest.raises(ConfigError, match="has the state of cluster 'c', not of 'd'"):
        fleet.check("two", cluster="d")


@contextmanager
def registers(fleet: Fleet, kind: str) -> Iterator[str | None]:
    """The URL of an empty register of a kind, None for the files of the directory."""
    with ExitStack() as stack:
        if kind == "etcd":
            yield f"etcd://{stack.enter_context(etcd_server(fleet.path / 'etcd'))}/c"
        elif kind == "s3":
            variables = s3_variables(stack.enter_context(s3_server()))
            stack.enter_context(mock.patch.dict(os.environ, variables))
            yield f"s3://{BUCKET}/c"
        else:
            yield fleet.url if kind == "file" else None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "file", "etcd", "s3"])
def test_what_a_decision_costs(fleet: Fleet, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of docs/reference/cluster.md: -m slow -k decision_costs."""
    home = fleet.home("one")
    with registers(fleet, kind) as url:
        state = fleet.opened(
            "one", None if url is None else take_over(home, RegisterOfStart(url, "start"))
        )
        state.topics.create("T", 2)
        state.heartbeat(beat())
        took = []
        for number in range(100):
            begun_s = time.perf_counter()
            state.heartbeat(beat(group=f"g{number}"))
            took.append((time.perf_counter() - begun_s) * 1000)
        with capsys.disabled():
            median, worst = statistics.median(took), max(took)
            print(f"\n{kind}: a decision takes {median:.1f} ms, at most {worst:.1f} ms")  # noqa: T201
