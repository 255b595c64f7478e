"""Apps that are up, asked over a node's socket: the answers are those of a process in Ray."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray.actors.client.client_ray import CLIENT_RAY
from rocketray.actors.client.connected_client import LocalClient
from rocketray.actors.client.local_transport import open_local
from rocketray.cli.arguments.found_hosts import apps_of
from rocketray.cli.nodes.console_command import host_records
from rocketray.errors import ActorError, ConfigError
from rocketray.groups.failing import FailingMessage
from rocketray.hosting import apps_service
from rocketray.hosting.apps_api import APPS, TakenDown
from rocketray.hosting.apps_service import AppsService, served_on
from rocketray.hosting.code_version import CodeVersion
from rocketray.hosting.host_failure import HostFailure
from rocketray.hosting.host_plan import HostPlan
from rocketray.hosting.host_status import SINKS, Host, HostStatus
from rocketray.runtime.calls.endpoint import client_of
from rocketray.runtime.process_logs.log_line import MessagePlace
from rocketray.runtime.ray_process.ray_runtime import RayError
from rocketray.topology.app.agent_statistics import AgentStatistics, HeldQueue
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics
from rocketray.topology.delivery.noted_failure import NotedFailure

pytestmark = pytest.mark.proves(
    "durability",
    "A member over the node's socket gets and commits what one of a direct client does, "
    "and continues when the node's process answers again; hosts of apps that are asked "
    "for over it are those that a process in Ray finds",
)

PLACE = MessagePlace("Orders", 1, 7, None, "id")
AGENT = AgentStatistics(
    *("pay", "shop-pay", 1, 2, 3, 4),
    held=(HeldQueue("Orders", 1, FailingMessage(7, 2, 0, "ValueError: \ud800")),),
    last_failure=NotedFailure(5, "ValueError", PLACE),
)
PLAN = HostPlan("shop:app", "default", "/apps", "gcs://x.zip", (("zone", "b"),), "/data")
STATUS = HostStatus(
    *(PLAN, "here", 1, True, (AGENT,), (("Orders", 0), ("Orders", 1))),
    logs=("/logs/a", "/logs/b"),
    sinks=(SinkStatistics("lake", "Orders", SinkState.RUNNING, 0, 3, 40, 1.5, None, "no"),),
    version=CodeVersion("d" * 64, 9, "/apps", ("shop.py",)),
)
FAILURE = HostFailure("ValueError", "no database", "/apps/shop.py:12", 0, "there")
HOSTS = [
    Host("shop", 0, "running", 0, STATUS, FAILURE),
    Host("shop", SINKS, "silent", 3, None),
    Host("tea", 0, "restarting", 1, None, cluster="orders"),
]


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actors, which would be in Ray; returns the names of those that were ended."""
    names: list[str] = []

    def take_down(hosts: Sequence[Host]) -> list[str]:
        names.extend(host.name for host in hosts)
        return [f"{host.label} was slow" for host in hosts if host.number == SINKS]

    monkeypatch.setattr(
        apps_service, "find_hosts", lambda _, app: [h for h in HOSTS if app in (None, h.app)]
    )
    monkeypatch.setattr(apps_service, "take_down", take_down)
    return names


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LocalClient]:
    loaded: list[str] = []

    def load() -> tuple[type, object]:
        loaded.append("apps")
        return served_on("default")

    with LocalNode(tmp_path) as node, serving(node, {"AppsApi": load}):
        link = open_local(node.data)
        assert link is not None
        with LocalClient(link) as found:
            assert not loaded, "no command needs it yet"
            yield found
        assert loaded == ["apps"]


def test_the_hosts_are_those_that_a_process_in_ray_finds(client: LocalClient) -> None:
    apps, direct = apps_of(client), AppsService("default")
    assert apps.hosts(None) == direct.hosts(None) == HOSTS
    assert apps.hosts("shop") == direct.hosts("shop") == HOSTS[:2]
    assert [record["host"] for record in host_records(client)] == [0, SINKS, 0]
    with pytest.raises(ConfigError, match="app 'shp' is not up; these are: shop, tea; start it"):
        apps.hosts("shp")


def test_an_app_is_taken_down_and_what_was_not_drained_is_returned(
    client: LocalClient, ended: list[str]
) -> None:
    apps = client_of(client.transport, APPS)
    said = ("the sinks of app 'shop' was slow",)
    assert apps.take_down("shop") == TakenDown(2, said)
    assert ended == ["app:shop:0", "app:shop:sinks"]
    with pytest.raises(ConfigError, match="app 'nope' is not up"):
        apps.take_down("nope")
    assert ended == ["app:shop:0", "app:shop:sinks"]


def test_hosts_that_ray_does_not_name_are_unknown_and_not_none(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Host]:
        raise RayError("the GCS is unavailable")

    monkeypatch.setattr(apps_service, "find_hosts", fail)
    with pytest.raises(ActorError, match="hosts of apps are unknown: Ray does not answer: the GCS"):
        apps_of(client).hosts(None)
    monkeypatch.setattr(CLIENT_RAY, "gcs_away", lambda: "Ray's GCS at x does not answer")
    with pytest.raises(ActorError, match="hosts of apps are unknown: Ray's GCS at x does not"):
        AppsService("default").hosts(None)


def test_a_command_reads_hosts_without_ray_and_faust() -> None:
    program = (
        "import sys, rocketray.hosting.apps_api, rocketray.cli.nodes.app_status;"
        "print({'ray', 'faust', 'numpy', 'pyarrow', 'numba'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
    program = (
        "import sys, rocketray.hosting.apps_service;"
        "print({'faust', 'pyspark'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n", "the node's process spares them"
