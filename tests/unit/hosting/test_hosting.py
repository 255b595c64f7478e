"""Starting and ending hosts, with actors that answer as the test says and no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.errors import ActorError, ConfigError
from rocketray.hosting import host_actors, hosting
from rocketray.hosting.host_failure import HostFailure
from rocketray.hosting.host_plan import HostPlan
from rocketray.hosting.host_status import SINKS, Host, HostNumber, HostStatus
from rocketray.topology.app.agent_statistics import AgentStatistics
from rocketray.topology.app.sink_spec import SinkSpec
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics

FAILURE = HostFailure("ValueError", "no database", "/apps/shop.py:12", 0)
NEVER = ray.exceptions.GetTimeoutError("not ready")
ENDED = ray.exceptions.RayActorError()
PLAN = HostPlan("shop:app", DEFAULT_CLUSTER, "/apps")
STATUS = HostStatus(PLAN, "here", 1, True, ())
SINK = SinkStatistics("lake", "Trade", SinkState.RUNNING, 0)
AGENT = AgentStatistics("note", "shop-note", 0, 0, 0, 0, 0, 0)


class Actor:
    """Answers each method with a value, or an error that is raised; notes what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[str] = []
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        def remote() -> Any:
            self.asked.append(name)
            return self.answers.get(name)

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=remote))


class FakeRay:
    """The calls of Ray that hosts are started and ended with."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.killed: list[Actor] = []
        self.timeouts: list[float] = []

    def wait(
        self, calls: Sequence[Any], *, num_returns: int, timeout: float
    ) -> tuple[list[Any], list[Any]]:
        assert timeout is not None
        self.timeouts.append(timeout)
        assert calls, "Ray refuses to wait for nothing"
        ready = [call for call in calls if call is not NEVER][:num_returns]
        left = list(calls)
        for call in ready:
            left.remove(call)
        return ready, left

    def get(self, call: Any, timeout: float) -> Any:
        assert timeout == 0, "what is not ready is not waited for"
        if isinstance(call, Exception):
            raise call
        return call

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    for module in (hosting, host_actors):
        monkeypatch.setattr(module, "ray", fake)
    return fake


def test_apps_that_start_are_left_running(fake: FakeRay) -> None:
    actors = [Actor(), Actor()]
    hosting.await_start("shop:app", actors)
    assert fake.killed == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (FAILURE, r"did not start: ValueError: no database \(/apps/shop.py:12\)$"),
        (replace(FAILURE, machine="far"), r"did not start: on far, ValueError: no database "),
        (ENDED, "did not start: its process ended: "),
        (NEVER, "did not start: 1 of 2 are not up after 0 s$"),
    ],
)
def test_when_one_does_not_start_all_are_drained_and_ended_and_the_reason_is_told(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch, answer: Any, why: str
) -> None:
    if answer is NEVER:
        monkeypatch.setattr(hosting, "START_TIMEOUT_S", 0.0)
    actors = [Actor(), Actor(start=answer)]
    with pytest.raises(ActorError, match=f"app 'shop:app' {why}"):
        hosting.await_start("shop:app", actors)
    assert [actor.asked for actor in actors] == [["start", "stop"]] * 2
    assert fake.killed == actors


def test_who_gives_up_waiting_ends_what_was_started(fake: FakeRay) -> None:
    actor = Actor(start=NEVER)
    with pytest.raises(ActorError, match="it was interrupted"):
        hosting.await_start("shop:app", [actor], lambda: True)
    assert fake.killed == [actor]


def test_hosts_may_take_as_long_as_their_stops_take_at_worst(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_actors, "host_actor", lambda *_: Actor())
    monkeypatch.setattr(host_actors, "_still_there", lambda _: [])
    monkeypatch.setattr(host_actors, "forget_failure", lambda _: None)
    two = replace(STATUS, agents=(), sinks=(SINK, SINK))
    agents = Host("shop", 0, "running", 0, STATUS)
    sinks = [Host("shop", SINKS, "running", 0, status) for status in (None, two)]
    for hosts in ([agents], [agents, sinks[0]], [sinks[1]]):
        host_actors.take_down(hosts)
    host_actors.take_down([sinks[1]], 60.0)
    assert fake.timeouts == [60.0, 300.0, 600.0, 60.0]


def test_what_was_not_drained_is_said_of_each_host_and_all_are_ended(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = [Actor(), Actor(stop=FAILURE), Actor(stop=NEVER), Actor(stop=ENDED), Actor()]
    hosts = [Host("shop", number, "running", 0, STATUS) for number in range(4)]
    hosts.append(Host("shop", 4, "restarting", 3, None))
    there: dict[str, Actor] = {host.name: actor for host, actor in zip(hosts, actors, strict=True)}
    forgotten: list[str] = []
    monkeypatch.setattr(host_actors, "host_actor", lambda _, name: there.get(name))
    monkeypatch.setattr(host_actors, "_still_there", lambda hosts: hosts[-1:])
    monkeypatch.setattr(host_actors, "forget_failure", forgotten.append)
    said = host_actors.take_down(hosts)
    assert [sentence.partition(":")[0] for sentence in said[:3]] == [
        f"host {number} of app 'shop' was ended before it was drained, so messages that it had "
        "finished may be redelivered"
        for number in (1, 2, 3)
    ]
    assert "ValueError: no database" in said[0]
    assert "it had not finished after 60 s" in said[1]
    assert "its process ended" in said[2]
    assert said[3] == "host 4 of app 'shop': its process has not ended; try again"
    assert actors[4].asked == [], "there is no process to ask"
    assert set(fake.killed) == set(actors)
    assert forgotten == [f"default/{host.name}" for host in hosts]


def test_an_app_that_is_up_from_elsewhere_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    up = [Host("shop", 0, "running", 0, STATUS)]
    again = hosting._is_up("shop", "shop:app", up, 1)
    assert "to run changed code: rocketray up shop:app --replace" in again
    assert "rocketray scale" not in again, "it has the number that was asked for"
    assert "rocketray scale shop 3" in hosting._is_up("shop", "shop:app", up, 3)
    assert "scale" not in hosting._is_up("shop", "shop:app", up * 2, 1), "1 is the default"
    said = hosting._is_up("shop", "other:app", up, 3)
    assert "is up with 1 host from shop:app, not from other:app" in said
    monkeypatch.setattr(hosting, "find_hosts", lambda *_: [Host("shop", 0, "silent", 1, None)])
    with pytest.raises(ConfigError, match="app 'shop' has 1 host, and no answer"):
        hosting.scale(DEFAULT_CLUSTER, "shop", 2)


@pytest.mark.parametrize(
    ("wanted", "started", "ended"), [(4, [1, 2], []), (2, [], []), (1, [], [3])]
)
def test_an_app_is_scaled_also_while_a_host_starts(
    monkeypatch: pytest.MonkeyPatch, wanted: int, started: list[int], ended: list[int]
) -> None:
    starting = replace(STATUS, is_running=False)
    hosts = [Host("shop", 0, "restarting", 1, None), Host("shop", 3, "starting", 0, starting)]
    begun: list[tuple[Any, ...]] = []
    monkeypatch.setattr(hosting, "find_hosts", lambda *_: hosts)
    monkeypatch.setattr(hosting, "start_hosts", lambda *each, **_: begun.append(each[:3]))
    monkeypatch.setattr(hosting, "take_down", lambda each: [str(host.number) for host in each])
    assert hosting.scale(DEFAULT_CLUSTER, "shop", wanted) == [str(number) for number in ended]
    assert begun == ([(PLAN, "shop", started)] if started else [])


def test_the_code_of_hosts_is_renewed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(hosting, "renew", renewed.append)
    status = replace(STATUS, plan=HostPlan("shop:app", DEFAULT_CLUSTER, code="gcs://x.zip"))
    given = [status, status, None, STATUS]
    hosting.renew_code([Host("shop", n, "running", 0, each) for n, each in enumerate(given)])
    assert renewed == ["gcs://x.zip"]


@pytest.mark.proves(
    "spark",
    "`rocketray up`, `status`, `scale` and `down` run and show sinks, and what failed where",
)
def test_the_host_of_sinks_stays_one_when_agents_are_scaled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents = replace(STATUS, agents=(AGENT,))
    hosts = [Host("shop", 0, "running", 0, agents), Host("shop", SINKS, "running", 0, STATUS)]
    begun: list[Any] = []
    monkeypatch.setattr(hosting, "find_hosts", lambda *_: hosts)
    monkeypatch.setattr(hosting, "start_hosts", lambda *each, **_: begun.append(each[2]))
    monkeypatch.setattr(hosting, "take_down", lambda each: [str(host.number) for host in each])
    assert hosting.scale(DEFAULT_CLUSTER, "shop", 1) == []
    assert hosting.scale(DEFAULT_CLUSTER, "shop", 2) == []
    assert begun == [[1]]
    assert hosting._is_up("shop", "shop:app", hosts, 1).startswith("app 'shop' is up with 1 host ")
    hosts[0] = Host("shop", 0, "running", 0, STATUS)
    with pytest.raises(ConfigError, match="no agents to scale, and its sinks run in one host"):
        hosting.scale(DEFAULT_CLUSTER, "shop", 2)


def test_hosts_are_in_the_order_of_their_numbers_and_that_of_sinks_is_last() -> None:
    keys: list[tuple[str, HostNumber]] = [("b", SINKS), ("b", 10), ("a", SINKS), ("b", 9)]
    assert sorted(keys, key=host_actors._order) == [("a", SINKS), ("b", 9), ("b", 10), ("b", SINKS)]


@pytest.mark.proves(
    "spark",
    "A sink of a cluster's app needs a checkpoint that every machine finds",
)
@pytest.mark.parametrize("checkpoint", [None, "kept/lake"])
def test_a_sink_of_a_cluster_needs_a_checkpoint_that_stays(checkpoint: str | None) -> None:
    for kept in ("/shared/lake", "s3://bucket/lake"):
        hosting.check_checkpoints([SinkSpec("lake", lambda _: None, "T", checkpoint=kept)])
    with pytest.raises(ConfigError, match="sink 'lake' has a checkpoint in the current directory"):
        hosting.check_checkpoints([SinkSpec("lake", lambda _: None, "T", checkpoint=checkpoint)])
