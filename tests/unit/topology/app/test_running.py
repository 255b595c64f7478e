"""What a program that runs an app shows of its log, and what runs beside its agents."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from support.nodes.apps import make_app
from support.nodes.local_node import LocalNode

from rocketray.errors import StreamError
from rocketray.topology.app.running import run_until_signalled

LOGS = """
import logging
{set_up}
from rocketray.topology.app.app_log import show_log
show_log()
logging.getLogger("rocketray.topology.app.app").info("ready")
logging.getLogger("rocketray.topology.app.app").info("[^App]: Starting...")
logging.getLogger("faust").info("chatter")
logging.getLogger("faust").warning("careful")
timers = logging.getLogger("mode.timers")
timers.warning("Timer %s is overlapping (interval=%r runtime=%r)", "commit", 0.2, 0.7)
timers.warning("Timer %s is overlapping (interval=%r runtime=%r)", "shop.tick", 1.0, 1.5)
"""
OVERLAP = "Timer {} is overlapping (interval={} runtime={})"
USERS = OVERLAP.format("shop.tick", 1.0, 1.5)


@pytest.mark.parametrize(
    ("set_up", "shown"),
    [
        ("", [" INFO rocketray.topology.app.app: ready", " WARNING faust: careful", USERS]),
        (
            "logging.basicConfig(format='mine %(message)s')",
            ["mine careful", "mine " + OVERLAP.format("commit", 0.2, 0.7), "mine " + USERS],
        ),
    ],
    ids=["nothing is set up", "the program has its own"],
)
def test_a_program_shows_its_start_unless_it_set_logging_up(set_up: str, shown: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGS.format(set_up=set_up)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stderr.splitlines()
    assert len(lines) == len(shown)
    assert all(line.endswith(end) for line, end in zip(lines, shown, strict=True))
    assert done.stdout == ""


class Beside:
    """Sinks that fail when they have started, or when they stop, or do not."""

    def __init__(self, error: BaseException | None, at_stop: StreamError | None = None) -> None:
        self.error: BaseException | None = error
        self.at_stop = at_stop
        self.calls: list[str] = []

    def start(self, failed: Callable[[], object]) -> None:
        self.calls.append("start")
        failed() if self.error else os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        self.calls.append("stop")
        self.error = self.at_stop or self.error


@pytest.mark.proves(
    "spark",
    "A sink that fails for good ends the program, and its agents are drained",
)
@pytest.mark.parametrize("error", [StreamError("sink 'lake' failed for good"), None])
def test_what_runs_beside_agents_ends_with_them_and_ends_them(
    node: LocalNode, error: StreamError | None
) -> None:
    beside = Beside(error)

    async def scenario() -> None:
        app, _ = make_app(node)
        await run_until_signalled(app, beside)
        assert app.should_stop

    asyncio.run(scenario())
    assert beside.calls == ["start", "stop"]


@pytest.mark.parametrize("error", [StreamError("sink 'lake' failed for good"), TypeError("ours")])
def test_a_sink_that_failed_ends_the_program_with_its_reason(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    app, _ = make_app(node)
    monkeypatch.setattr("rocketray.topology.app.app.sink_service", lambda _: Beside(error))
    with pytest.raises(SystemExit if isinstance(error, StreamError) else TypeError) as raised:
        app.main()
    said = "app app: sink 'lake' failed for good" if isinstance(error, StreamError) else "ours"
    assert str(raised.value) == said


def test_sinks_that_do_not_stop_end_the_program_with_one_line(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = make_app(node)
    beside = Beside(None, StreamError("sink 'lake' does not stop: it waited 300 s"))
    monkeypatch.setattr("rocketray.topology.app.app.sink_service", lambda _: beside)
    with pytest.raises(SystemExit) as raised:
        app.main()
    assert str(raised.value) == "app app: sink 'lake' does not stop: it waited 300 s"


def test_an_app_of_sinks_alone_says_that_they_start(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("rocketray.topology.app.app.sink_service", lambda _: Beside(None))
    app, _ = make_app(node)
    app.sink("Trade", name="lake")(lambda frame, batch_id: None)
    app.main()
    assert any(
        "app has no agents; its sinks start on Spark: lake" in line for line in caplog.messages
    )
