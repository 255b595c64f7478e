"""What blocks the loop of an app, by looks that the tests take, and once with the real thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.patience import until

import rocketray as rr
from rocketray.runtime.process_logs.log_line import MessagePlace
from rocketray.testing import Broker
from rocketray.topology.app.loop_watch import STALL_LOOKS, LoopWatch

LOGGER = "rocketray.topology.app.loop_watch"


class Watched:
    """A watch over the running loop, whose clock shows the number of looks."""

    def __init__(self) -> None:
        self.looks = 0
        app = SimpleNamespace(conf=SimpleNamespace(id="shop"), agents={})
        self.watch = LoopWatch(app, lambda: float(self.looks))

    def look(self, times: int) -> None:
        for _ in range(times):
            self.looks += 1
            self.watch.look()


def in_a_task(work: Callable[[Watched], Any]) -> None:
    """Call *work*, a coroutine function, in a task beside the one that made the watch."""

    async def scenario() -> None:
        await asyncio.create_task(work(Watched()))

    asyncio.run(scenario())


def test_one_line_names_what_blocks_and_one_how_long_it_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def blocks(watched: Watched) -> None:
        watched.look(STALL_LOOKS)
        assert (caplog.messages, watched.watch.stall()) == ([], None)
        watched.look(10)
        (said,) = caplog.messages
        assert said.startswith(
            f"a task has blocked the loop of app shop for {STALL_LOOKS:.1f} s: it stands at "
            f"{__file__}:"
        )
        assert " in look, in loop_watch.py _note; no other agent, timer or commit of" in said
        present = watched.watch.stall()
        assert present is not None
        assert (present.seconds, present.is_over) == (STALL_LOOKS + 9.0, False)
        await asyncio.sleep(0)
        watched.look(1)
        assert caplog.messages[1:] == [
            f"the loop of app shop turns again: a task blocked it for {STALL_LOOKS + 9:.1f} s"
        ]
        last = watched.watch.stall()
        assert last is not None
        assert (last.seconds, last.is_over) == (STALL_LOOKS + 9.0, True)
        watched.look(STALL_LOOKS)
        assert len(caplog.messages) == 3, "the next one is told of, too"

    in_a_task(blocks)


def test_a_loop_that_turns_between_looks_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    async def turns(watched: Watched) -> None:
        for _ in range(5):
            watched.look(STALL_LOOKS)
            await asyncio.sleep(0)

    in_a_task(turns)
    assert caplog.messages == []


def test_one_late_look_is_no_stall(caplog: pytest.LogCaptureFixture) -> None:
    """As after a process was stopped: neither the loop nor the watch had its turn."""

    async def stopped(watched: Watched) -> None:
        watched.look(1)
        watched.looks += 1_000
        watched.look(1)

    in_a_task(stopped)
    assert caplog.messages == []


def test_the_task_that_started_the_app_may_block(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.look(2 * STALL_LOOKS)
        assert watched.watch.stall() is None

    asyncio.run(scenario())
    assert caplog.messages == []


class Told(logging.Handler):
    """Sets ``event`` when a line names the handler; kernels that compile block the loop, too."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if " in charge, in threading.py wait; " in record.getMessage():
            self.event.set()


@pytest.fixture
def told() -> Iterator[threading.Event]:
    handler = Told()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler.event
    logging.getLogger(LOGGER).removeHandler(handler)


@pytest.mark.parametrize("takes", [False, True])
def test_a_handler_that_blocks_is_logged_with_the_message_in_hand(
    told: threading.Event, takes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It blocks until the watch, in its thread, has said so: however long that takes."""

    async def scenario() -> None:
        with Broker() as broker:
            app = rr.App("shop", connection=broker)
            orders = app.topic("orders", value_type=int, queues=1)

            @app.agent(orders)
            async def charge(stream: Any) -> None:
                async for _ in stream.take(2, 60) if takes else stream:
                    # A kernel that was compiled on the way here is a stall of its own: end it.
                    await asyncio.sleep(0)
                    told.wait()

            async with broker.running(app):
                for number in range(2):
                    await orders.send(value=number)
                assert app.loop_watch is not None
                await until(lambda: told.is_set() and "blocked it" in "".join(caplog.messages[-1:]))
                stall = app.loop_watch.stall()
                assert stall is not None
                place = MessagePlace("orders", 0, 0, 1)
                if not takes:
                    unique_key = broker.stored("orders")[0].unique_key
                    place = MessagePlace("orders", 0, 0, None, unique_key)
                assert (stall.who, stall.is_over, stall.place) == ("agent charge", True, place)
                assert stall.frame.startswith(f"{__file__}:")

    asyncio.run(scenario())
    begun, ended = caplog.messages[-2:]
    assert begun.startswith("agent charge has blocked the loop of app shop for ")
    assert f" s at topic orders queue 0 offset 0: it stands at {__file__}:" in begun
    assert ended.startswith("the loop of app shop turns again: agent charge blocked it for ")
    assert ended.endswith(" s at topic orders queue 0 offset 0")
