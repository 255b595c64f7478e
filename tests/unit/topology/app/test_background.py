"""What runs beside agents: timers, crontabs, tasks, services, signals, and other web servers."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.contrib.asgi import faust_app_running
from support.harness.patience import until
from support.nodes.apps import collecting, running
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App

KATHMANDU = timezone(timedelta(hours=5, minutes=45))


@pytest.mark.proves("faust", "`@app.crontab`, `@app.service`: works")
def test_crontab_services_and_tasks_run_with_the_app(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        ran: set[str] = set()

        @app.crontab("* * * * *")
        async def every_minute() -> None:
            ran.add("crontab")

        @app.service
        class Own(faust.Service):  # type: ignore[misc]  # the same
            async def on_start(self) -> None:
                ran.add("service")

            @faust.Service.task  # type: ignore[untyped-decorator]  # the same
            async def background(self) -> None:
                ran.add("task of a service")

        @app.task
        async def once() -> None:
            ran.add("task")

        async with running(app):
            await until(lambda: ran >= {"service", "task of a service", "task"})

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`crontab(timezone=)`: works")
def test_a_crontab_goes_by_its_time_zone_or_by_the_apps(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, tzinfo | None] = {}

    def seconds_left(spec: str, zone: tzinfo | None) -> float:
        is_first = spec not in asked
        asked[spec] = zone
        return 0.01 if is_first else 3600.0

    monkeypatch.setattr("faust.app.base.cron.secs_for_next", seconds_left)

    async def scenario() -> None:
        app = App("app", connection=node, timezone=UTC)
        ran: list[str] = []

        @app.crontab("30 18 * * *", timezone=KATHMANDU)
        async def evening() -> None:
            ran.append("evening")

        @app.crontab("0 6 * * *")
        async def morning() -> None:
            ran.append("morning")

        async with running(app):
            await until(lambda: sorted(ran) == ["evening", "morning"])

    asyncio.run(scenario())
    assert asked == {"30 18 * * *": KATHMANDU, "0 6 * * *": UTC}


@pytest.mark.proves("faust", "Signals: works")
def test_signals_are_sent_in_their_order(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        sent: list[str] = []

        @app.on_configured.connect  # type: ignore[untyped-decorator]  # Faust's
        def configured(app: App, conf: Any, **_: Any) -> None:  # Faust's names
            sent.append("configured")

        for name in ("on_partitions_assigned", "on_rebalance_complete", "on_before_shutdown"):

            async def note(*_: Any, name: str = name, **__: Any) -> None:
                sent.append(name.removeprefix("on_"))

            getattr(app, name).connect(note, weak=False)
        app.agent(app.topic("T", queues=1), name="reader")(collecting([]))
        async with running(app):
            await until(lambda: "rebalance_complete" in sent)
        assert sent == [
            "configured", "partitions_assigned", "rebalance_complete", "before_shutdown",
        ]  # fmt: skip

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`on_worker_init`: works")
def test_a_worker_tells_before_it_begins(node: LocalNode) -> None:
    app = App("app", connection=node)
    sent: list[Any] = []
    app.on_worker_init.connect(lambda sender, **_: sent.append(sender), weak=False)
    app.worker_init()
    app.worker_init_post_autodiscover()
    assert sent == [app]


@pytest.mark.proves("faust", "`app.discover()`, `autodiscover=`: works")
def test_agents_are_found_in_modules_and_read_their_topics(
    node: LocalNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "found_shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text("import rocketray as rr\napp = rr.App('shop')\n")
    (package / "orders.py").write_text(
        "from found_shop.main import app\n"
        "seen = []\n"
        "@app.agent(app.topic('Orders', queues=1, value_serializer='raw'))\n"
        "async def note(stream):\n"
        "    async for value in stream:\n"
        "        seen.append(value)\n"
        "@app.timer(0.01)\n"
        "async def tick():\n"
        "    seen.append('tick') if 'tick' not in seen else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from found_shop.main import app  # type: ignore[import-not-found]  # noqa: PLC0415

    app._connection.node = node
    app.conf.autodiscover = ["found_shop"]
    assert "found_shop.orders" not in sys.modules
    app.discover()

    async def scenario() -> None:
        async with running(app):
            await app.send("Orders", value=b"1", value_serializer="raw")
            await until(lambda: {b"1", "tick"} <= set(sys.modules["found_shop.orders"].seen))

    asyncio.run(scenario())
    assert list(app.agents) == ["note"]


@pytest.mark.proves("faust", "`app.web_server`, `faust.contrib.asgi`: works")
def test_an_app_runs_within_another_server_and_stops_with_it(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        seen: list[bytes] = []
        app.agent(app.topic("T", queues=1, value_serializer="raw"), name="r")(collecting(seen))
        async with faust_app_running(app):
            await app.send("T", value=b"1", value_serializer="raw")
            await until(lambda: seen)
        assert app.should_stop

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`app.web_server`, `faust.contrib.asgi`: works")
def test_a_web_server_of_ones_own_takes_the_place_of_fausts(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node, web_enabled=True)
        states: list[str] = []

        @app.web_server
        class Server(faust.Service):  # type: ignore[misc]  # Faust's types are not followed
            async def on_start(self) -> None:
                states.append("started")

            async def on_stop(self) -> None:
                states.append("stopped")

        async with running(app):
            await until(lambda: states)
        assert states == ["started", "stopped"]

    asyncio.run(scenario())
