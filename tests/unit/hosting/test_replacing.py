"""A roll of new code over hosts that are started and ended as the test says, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.errors import ActorError
from rocketray.hosting import replacing
from rocketray.hosting.code_version import CodeVersion
from rocketray.hosting.host_plan import HostPlan
from rocketray.hosting.host_status import SINKS, Host, HostStatus
from rocketray.hosting.replacing import Replacement, replace_hosts

PLAN = HostPlan("shop:app", "default", "/apps")
OLD, NEW = (CodeVersion(letter * 64, 0, "/apps", ("shop.py",)) for letter in "on")


class Deployment:
    """The steps that a roll took: ``+2`` starts host 2, ``-0`` ends host 0."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fails_at: int | str | None = None
        self.told: list[str] = []

    def start(self, _: HostPlan, app: str, numbers: Sequence[int], *__: Any, **options: Any) -> Any:
        assert app == "shop"
        assert options["detached"]
        what = SINKS if options["spark"] is not None else numbers[0]
        if what == self.fails_at:
            raise ActorError("app 'shop:app' did not start: ValueError: no database")
        self.steps.append(f"+{what}")

    def take_down(self, hosts: Sequence[Host]) -> list[str]:
        self.steps += [f"-{host.number}" for host in hosts]
        return [f"{host.label} was slow" for host in hosts if host.number == 1]


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    found = Deployment()
    monkeypatch.setattr(replacing, "start_hosts", found.start)
    monkeypatch.setattr(replacing, "take_down", found.take_down)
    return found


def host(number: int | Any, version: CodeVersion | None = OLD, *, answers: bool = True) -> Host:
    status = HostStatus(PLAN, "here", 1, True, (), version=version) if answers else None
    return Host("shop", number, "running", 0, status)


def roll(
    deployment: Deployment,
    hosts: Sequence[Host],
    *,
    broadcast: bool = False,
    outdated: Sequence[int] = (),
) -> list[str]:
    agent = SimpleNamespace(membership=SimpleNamespace(is_broadcast=broadcast))
    has_sinks = any(each.number == SINKS for each in hosts)
    app: Any = SimpleNamespace(
        conf=SimpleNamespace(id="shop"),
        agents={"charge": agent},
        sinks={"lake": object()} if has_sinks else {},
        spark="options",
    )
    new = Replacement(PLAN, app, NEW, outdated=frozenset(outdated))
    return replace_hosts(new, hosts, deployment.told.append)


def test_one_host_after_the_other_and_never_fewer_than_before(deployment: Deployment) -> None:
    assert roll(deployment, [host(0), host(1)]) == ["host 1 of app 'shop' was slow"]
    assert deployment.steps == ["+2", "-0", "+0", "-1"]
    assert deployment.told == [
        "host 0 of app 'shop': host 2 runs version nnnnnnnn in its place",
        "host 1 of app 'shop': host 0 runs version nnnnnnnn in its place",
    ]


def test_the_sinks_are_last_and_never_twice(deployment: Deployment) -> None:
    roll(deployment, [host(0), host(SINKS)])
    assert deployment.steps == ["+1", "-0", "-sinks", "+sinks"]


def test_broadcast_agents_end_before_their_successors_start(deployment: Deployment) -> None:
    roll(deployment, [host(0), host(1)], broadcast=True)
    assert deployment.steps == ["-0", "+0", "-1", "+1"]


def test_a_host_that_does_not_answer_is_replaced_and_a_new_one_left_alone(
    deployment: Deployment,
) -> None:
    roll(deployment, [host(0, NEW), host(1, answers=False)])
    assert deployment.steps == ["+2", "-1"]


def test_a_host_with_an_outdated_filter_is_replaced_by_the_same_code(
    deployment: Deployment,
) -> None:
    roll(deployment, [host(0, NEW), host(1, NEW)], outdated=[1])
    assert deployment.steps == ["+2", "-1"]


def test_nothing_is_done_where_all_run_the_version(deployment: Deployment) -> None:
    assert roll(deployment, [host(0, NEW), host(1, NEW)]) == []
    assert deployment.steps == []
    assert deployment.told == ["all hosts of app 'shop' run version nnnnnnnn already"]


def test_code_that_fails_at_once_leaves_all_hosts_as_they_are(deployment: Deployment) -> None:
    deployment.fails_at = 2
    with pytest.raises(ActorError) as raised:
        roll(deployment, [host(0), host(1)])
    assert deployment.steps == []
    assert str(raised.value) == (
        "host 0 of app 'shop': the roll stopped: app 'shop:app' did not start: ValueError: no "
        "database; still with the code that they had: hosts 0, 1; correct the code, then run this "
        "command again"
    )


def test_code_that_fails_later_stops_the_roll_there(deployment: Deployment) -> None:
    deployment.fails_at = 0
    with pytest.raises(ActorError, match=r"had: hosts 1; with version nnnnnnnn: hosts 2; corr"):
        roll(deployment, [host(0), host(1)])
    assert deployment.steps == ["+2", "-0"]


def test_a_host_that_was_ended_first_is_said_to_be_down(deployment: Deployment) -> None:
    deployment.fails_at = 0
    with pytest.raises(ActorError, match=r"had: hosts 1; down: host 0; correct"):
        roll(deployment, [host(0), host(1)], broadcast=True)


def test_sinks_that_fail_are_said_to_be_down(deployment: Deployment) -> None:
    deployment.fails_at = SINKS
    with pytest.raises(ActorError, match=r"with version nnnnnnnn: hosts 1; down: the sinks; "):
        roll(deployment, [host(0), host(SINKS)])
