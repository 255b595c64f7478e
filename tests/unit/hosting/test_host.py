"""A host's life without Ray: what it says of an app that starts, fails, crashes and stops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private.async_compat import has_async_methods
from support.harness.patience import patience, wait_until
from support.nodes.local_node import LocalNode

from rocketray.base.cluster import DEFAULT_CLUSTER, Cluster
from rocketray.hosting import host
from rocketray.hosting.host import ConsumerHost
from rocketray.hosting.host_failure import HostFailure
from rocketray.hosting.host_plan import HostPlan

HEAD = (
    "import asyncio, rocketray as rr, host_node\napp = rr.App('shop', connection=host_node.node)\n"
)
GOOD = (
    HEAD
    + "@app.agent(app.topic('T', queues=2))\nasync def note(stream):\n    async for _ in stream: pass\n"
)
TASK = GOOD + "@app.task\nasync def begin():\n"
FAILING = {
    "raises_at_import": (HEAD + "raise ValueError('no such setting')\n", 3),
    "exits_at_import": (HEAD + "raise SystemExit('no licence')\n", 3),
    "raises_in_a_task": (TASK + "    raise ValueError('no database')\n", 8),
    "raises_in_a_late_task": (
        TASK + "    await asyncio.sleep(0.2)\n    raise ValueError('no answer')\n",
        9,
    ),
}


@pytest.fixture
def start(
    node: LocalNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ConsumerHost]]:
    """Starts a host of a module with the given text; it is stopped with the test."""
    hosts = []
    monkeypatch.setitem(sys.modules, "host_node", SimpleNamespace(node=node))
    monkeypatch.syspath_prepend(tmp_path)

    def begin(
        module: str, text: str = "", *, code: str | None = None, **options: Any
    ) -> ConsumerHost:
        if code is None:
            (tmp_path / f"{module}.py").write_text(text)
        directory = str(tmp_path) if code is None else None
        plan = HostPlan(f"{module}:app", DEFAULT_CLUSTER, directory, code)
        hosts.append(ConsumerHost(plan, **options))
        return hosts[-1]

    yield begin
    for each in hosts:
        each.stop()


def test_a_host_runs_its_app_and_drains_it(start: Callable[..., ConsumerHost]) -> None:
    one = start("good_app", GOOD)
    assert one.start() is None
    status = one.status()
    assert (status.is_running, status.has_failed) == (True, False)
    assert [agent.name for agent in status.agents] == ["note"]
    assert status.queues == (("T", 0), ("T", 1))
    assert one.stop() is None
    assert not one.status().is_running
    assert one.stop() is None, "twice is once"


def test_a_host_whose_handler_blocks_the_loop_answers_and_says_so(
    start: Callable[..., ConsumerHost], node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "LOOP_TIMEOUT_S", 0.05)
    may_go_on = threading.Event()
    monkeypatch.setattr(node, "may_go_on", may_go_on, raising=False)
    text = GOOD + "@app.task\nasync def blocks():\n    host_node.node.may_go_on.wait()\n"
    one = start("blocking_app", text)
    try:
        wait_until(lambda: one.status().stall is not None, "it does not say what blocks it")
        status = one.status()
        assert status.is_running
        assert status.stall is not None
        assert not status.stall.is_over
        assert status.stall.frame.endswith("in blocks, in threading.py wait")
    finally:
        may_go_on.set()
    assert one.start() is None
    wait_until(lambda: bool(one.status().agents), "it does not answer with its agents again")


@pytest.mark.parametrize("name", FAILING)
def test_an_app_that_fails_as_it_starts_says_why_and_where(
    name: str, start: Callable[..., ConsumerHost]
) -> None:
    text, line = FAILING[name]
    noted: list[tuple[str, HostFailure]] = []
    one = start(name, text, name="app:shop:0", note=lambda *each: noted.append(each))
    failure = one.start()
    assert failure is not None
    assert "no " in failure.message
    assert str(failure.place).endswith(f"{name}.py:{line}")
    assert noted == [("app:shop:0", failure)], "who asks later is told as well"
    assert one.status().has_failed


def test_a_host_whose_app_failed_ends_its_process_after_a_pause(
    start: Callable[..., ConsumerHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "FAILED_START_PAUSE_S", 0.01)
    ended = threading.Event()
    start("failing_at_once", "raise ValueError\n", end=ended.set)
    assert ended.wait(patience(30))


def test_a_host_that_is_asked_to_stop_after_a_failed_start_stays_until_it_is_ended(
    start: Callable[..., ConsumerHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "FAILED_START_PAUSE_S", 3600)
    text, _ = FAILING["raises_in_a_task"]
    one = start("refused", text, end=lambda: pytest.fail("its process was ended"))
    assert one.start() is not None
    assert not one.status().is_running, "it answers meanwhile"
    assert one.stop() is None


def test_an_app_that_crashes_later_ends_its_process_and_leaves_its_reason(
    start: Callable[..., ConsumerHost],
) -> None:
    noted: list[tuple[str, HostFailure]] = []
    ended = threading.Event()
    text = (
        GOOD
        + "@app.task\nasync def begin():\n    await host_node.crash.wait()\n    raise OSError(5)\n"
    )
    one = start(
        "crashing_app",
        "import asyncio, host_node\nhost_node.crash = asyncio.Event()\n" + text,
        name="app:shop:1",
        note=lambda *each: noted.append(each),
        end=ended.set,
    )
    assert one.start() is None
    one._loop.call_soon_threadsafe(sys.modules["host_node"].crash.set)
    assert ended.wait(patience(30))
    assert [(name, failure.kind) for name, failure in noted] == [("app:shop:1", "OSError")]


def test_what_keeps_an_app_from_draining_is_said(start: Callable[..., ConsumerHost]) -> None:
    one = start(
        "unstoppable",
        GOOD + "async def refuse():\n    raise OSError('disk full')\napp.stop = refuse\n",
    )
    assert one.start() is None
    failure = one.stop()
    assert failure is not None
    assert (failure.kind, failure.message) == ("OSError", "disk full")


@pytest.mark.parametrize("is_missing", [False, True])
def test_code_that_ray_unpacked_is_imported_instead_of_that_of_who_started_the_host(
    start: Callable[..., ConsumerHost],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_missing: bool,
) -> None:
    """Ray puts the current directory of the program that started an actor first on its path."""
    monkeypatch.setattr(host, "starter_paths", lambda: [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "travelled", raising=False)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    (tmp_path / "travelled.py").write_text("raise ValueError('not this one')\n")
    if not is_missing:
        (unpacked / "travelled.py").write_text(GOOD)
    monkeypatch.syspath_prepend(unpacked)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(unpacked)
    one = start("travelled", code="gcs://x.zip")
    if is_missing:
        said = str(one.start())
        assert "No module named 'travelled'; name a module" in said
        assert "leaves it out of the upload" in said
        return
    assert one.start() is None
    assert one.status().plan.code == "gcs://x.zip"
    assert sys.modules["travelled"].app.place == Cluster("default")


def test_a_call_that_waits_holds_up_no_other() -> None:
    """Ray would call a class with coroutines on one loop, and complain of each call that blocks."""
    assert not has_async_methods(ConsumerHost)
