"""Where ``rocketray up`` takes an app's code from, and what it says of the upload."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from rocketray.actors.client.connection import Connection
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.cli.nodes import app_plan
from rocketray.cli.nodes.app_plan import parse_labels, plan_of, queues_to_read
from rocketray.errors import ConfigError
from rocketray.hosting import host_placement
from rocketray.topology.app.app import App

APP = "import rocketray as rr\napp = rr.App('shop')\n"


def connected(node: dict[str, Any] | None) -> Connection:
    """A connection that found the node by its directory, or by its cluster."""
    return cast("Connection", SimpleNamespace(cluster="orders", node=node))


@pytest.fixture
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which has an app in a package."""
    (tmp_path / "planned").mkdir()
    (tmp_path / "planned" / "shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("planned", "planned.shop"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_the_code_of_an_app_of_a_cluster_is_uploaded(
    apps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, code = plan_of(connected(None), "planned.shop:app", (("zone", "b"),))
    assert (plan.cluster, plan.directory, plan.labels) == ("orders", None, (("zone", "b"),))
    assert code is not None
    assert (code.directory, code.file_count) == (apps, 1)
    assert capsys.readouterr().err == "", "a small upload is not worth a line"


def test_what_is_large_and_what_is_left_out_is_said(
    apps: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (apps / "rates.csv").write_bytes(bytes(3 << 19))
    (apps / "shop-data").mkdir()  # of the app's tables
    (apps / "data").mkdir()
    (apps / "data" / "node.lock").touch()
    plan_of(connected(None), "planned.shop:app", ())
    assert capsys.readouterr().err.splitlines() == [
        f"uploading 2 files of {apps} (1.5 MiB)",
        "left out of the upload, with messages or tables: data, shop-data",
    ]
    (apps / ".gitignore").write_text("rates.csv\n")
    for ignores, count in ((None, 1), ("1", 2)):
        environ = {"RAY_RUNTIME_ENV_IGNORE_GITIGNORE": ignores} if ignores else {}
        monkeypatch.setattr(app_plan, "process_environ", lambda environ=environ: environ)
        _, code = plan_of(connected(None), "planned.shop:app", ())
        assert code is not None
        assert code.file_count == count


def test_an_app_that_is_installed_is_not_uploaded() -> None:
    plan, code = plan_of(connected(None), "rocketray_demo.app:app", ())
    assert code is None
    assert plan.path == "rocketray_demo.app:app"


def test_on_a_data_directory_hosts_stay_here_and_import_from_it(
    apps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = ("rocketray-disk", "d1")
    monkeypatch.setattr(host_placement, "label_of_machine", lambda: label)
    plan, code = plan_of(connected({"data": "/data"}), "planned.shop:app", ())
    assert (plan.directory, plan.labels, code) == (str(apps), (label,), None)
    assert plan.data == "/data"
    with pytest.raises(ConfigError, match="--cluster orders up planned"):
        plan_of(connected({"data": "/data"}), "planned.shop:app", (("zone", "b"),))


def test_labels_are_pairs() -> None:
    assert parse_labels(["zone=b", "a=b=c"]) == (("zone", "b"), ("a", "b=c"))
    for text in ("zone", "=b", "zone="):
        with pytest.raises(typer.BadParameter, match="is not KEY=VALUE"):
            parse_labels([text])


def test_the_queues_that_instances_share_are_those_of_the_node_or_of_the_declaration() -> None:
    app = App("shop")

    async def handle(stream: Any) -> None: ...

    for number, topic in enumerate(
        [
            app.topic("Orders", "Returns", queues=2),
            app.topic("Prices"),
            app.topic(pattern="Old.*"),
        ]
    ):
        app.agent(topic, name=f"a{number}")(handle)
    app.agent(app.topic("Rates", queues=1), name="all", broadcast=True)(handle)
    app.agent(app.channel(), name="here")(handle)
    existing = {name: TopicConfig(name, 4, (), "") for name in ("Returns", "OldOrders", "Unread")}
    assert queues_to_read(app, existing) == {
        "Orders": 2,
        "Returns": 4,
        "Prices": app.conf.topic_partitions,
        "OldOrders": 4,
    }
