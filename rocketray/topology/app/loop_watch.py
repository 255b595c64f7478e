"""The watch over an app's loop: what blocks it is logged, with the message in hand.

While a handler blocks, for instance in ``time.sleep`` or in a synchronous client, nothing else of
the app runs: no other agent, timer or commit. A thread looks every ``LOOK_S`` whether the loop has
turned since its last look. That costs the loop a callback for each look, and a message nothing.

Looks are counted, not seconds: a process that was stopped, or got no processor, looks late itself,
and says nothing of its loop. So code that keeps the interpreter's lock, such as a slow regular
expression, is not seen: it holds up the watch as well.

The task that started the app is left out. It is the program's own: in tests it drives the node, on
the loop of the app.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.periodic import start_periodic_task
from rocketray.runtime.process_logs.log_line import MessagePlace, place_extra
from rocketray.topology.delivery.delivery import place_of

from .loop_stall import LoopStall
from .own_code import is_installed
from .stream import Stream

logger = logging.getLogger(__name__)

LOOK_S = 0.25
STALL_LOOKS = 4
"""A loop that has not turned for so many looks, a second, is blocked."""


class LoopWatch:
    """Watches the running loop, for *app*; made by the task that starts the app."""

    def __init__(self, app: Any, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._app, self._clock_s = app, clock_s
        self._loop = asyncio.get_running_loop()
        self._starter = asyncio.current_task()
        self._loop_thread = threading.get_ident()
        self._is_over = threading.Event()
        self._looks = 0  # since the loop was asked to turn
        self._asked_s = self._turned_s = clock_s()
        self._has_turned = True
        self._last: LoopStall | None = None

    def start(self) -> None:
        """Begin to look, in a thread."""
        start_periodic_task("loop watch", LOOK_S, self._is_over, self.look)

    def stop(self) -> None:
        self._is_over.set()

    def stall(self) -> LoopStall | None:
        """Return what blocks the loop now, else what blocked it last; for any thread."""
        last = self._last
        if last is None or last.is_over:
            return last
        return replace(last, seconds=self._clock_s() - self._asked_s)

    def look(self) -> None:
        """Look once whether the loop has turned since it was asked to."""
        if not self._has_turned:
            self._looks += 1
            if self._looks == STALL_LOOKS:
                self._note()
            return
        if self._last is not None and not self._last.is_over:
            self._note_end(self._last)
        self._looks, self._has_turned, self._asked_s = 0, False, self._clock_s()
        try:
            self._loop.call_soon_threadsafe(self._turn)
        except RuntimeError:  # the loop is closed
            self.stop()

    def _turn(self) -> None:
        self._turned_s = self._clock_s()
        self._has_turned = True

    def _note(self) -> None:
        """Log what blocks the loop, unless it has turned meanwhile."""
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # no public name
        if frame is None or (task is not None and task is self._starter):
            return
        (who, place), where = self._in_hand(task), _own_line(frame)
        seconds = self._clock_s() - self._asked_s
        begun_ms = system_clock_ms() - int(seconds * 1000)
        if self._has_turned:
            return
        self._last = LoopStall(begun_ms, seconds, is_over=False, who=who, place=place, frame=where)
        logger.warning(
            "%s has blocked the loop of app %s for %.1f s%s: it stands at %s; no other agent, "
            "timer or commit of the app runs meanwhile; await what it waits for, or call it with "
            "asyncio.to_thread",
            *(who, self._app.conf.id, seconds, _position(place), where),
            extra=place_extra(place),
        )

    def _note_end(self, stall: LoopStall) -> None:
        seconds = self._turned_s - self._asked_s
        self._last = replace(stall, seconds=seconds, is_over=True)
        logger.warning(
            "the loop of app %s turns again: %s blocked it for %.1f s%s",
            *(self._app.conf.id, stall.who, seconds, _position(stall.place)),
            extra=place_extra(stall.place),
        )

    def _in_hand(self, task: asyncio.Task[Any] | None) -> tuple[str, MessagePlace | None]:
        """Return the agent that *task* runs, and the message that its handler has."""
        with suppress(RuntimeError):  # the loop has turned, and changed a set that is read here
            for agent in [*self._app.agents.values()]:
                for actor in [*agent._actors]:  # noqa: SLF001  # contract-tested
                    if task is not None and actor.actor_task is task:
                        active = actor.stream.get_active_stream()
                        inbox = active.inbox if isinstance(active, Stream) else None
                        runs = () if inbox is None else inbox.hand().runs
                        return f"agent {agent.name}", place_of(*runs[0]) if runs else None
        return "a task", None


def watch_loop(app: Any) -> LoopWatch:
    """Return a watch over the running loop, which looks until it is stopped or the loop closed."""
    watch = LoopWatch(app)
    watch.start()
    return watch


def _position(place: MessagePlace | None) -> str:
    return "" if place is None else f" {place.position()}"


def _own_line(innermost: FrameType) -> str:
    """Return the innermost line of the app's own code, and where in a library it waits."""
    frames = [
        (Path(frame.f_code.co_filename), line, frame.f_code.co_name)
        for frame, line in traceback.walk_stack(innermost)
    ]
    own = next(
        (each for each in frames if each[0].is_absolute() and not is_installed(each[0])), None
    )
    file, line, name = own or frames[0]
    inside = "" if own in (None, frames[0]) else f", in {frames[0][0].name} {frames[0][2]}"
    return f"{file}:{line} in {name}{inside}"
