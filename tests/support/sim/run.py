"""Runs of the simulator, each in a process of its own, so that a seed repeats whatever ran before."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from support.harness.patience import patience

from rocketray.kernels import warm

from . import faults, groups, senders, upkeep
from .healing import heal
from .machine import simulated
from .world import World

_MEMORY = Path("/dev/shm")
_TIMEOUT_S = 300.0
_OBJECTS_A_COLLECTION = 20_000  # dead parts leave open files in cycles, so it cannot be without
_STEPS = (*senders.STEPS, *groups.STEPS, *upkeep.STEPS, *faults.STEPS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found: nothing, or the first broken promise."""

    seed: int
    failure: str
    """Empty if all was right."""
    log: tuple[str, ...]
    digest: str
    """Equal for equal runs."""
    figures: dict[str, int]


Mutate = Callable[[], None]


def run_seed(seed: int, directory: Path, mutate: Mutate = lambda: None) -> Outcome:
    """Run one seed in this process, in *directory*; *mutate* plants a bug before."""
    logging.disable(logging.CRITICAL)
    world = World(seed, directory)
    failure = ""
    try:
        mutate()
        try:
            with simulated(world.machine):
                world.run(_STEPS, heal)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome
            failure = f"{error!r:.500}\n{''.join(traceback.format_tb(error.__traceback__)[-6:])}"
        return Outcome(seed, failure, (*world.log,), world.digest(), world.figures())
    finally:
        world.machine.forget_runtime()


def run_seeds(
    seeds: Iterable[int], workers: int, mutate: Mutate = lambda: None
) -> Iterator[Outcome]:
    """Yield the outcome of each seed, as they come; each runs in a process of its own."""
    warm()  # so that no process loads them again
    gc.collect()
    gc.freeze()
    waiting = iter(seeds)
    running: dict[Connection, tuple[int, int, float]] = {}
    with tempfile.TemporaryDirectory(
        dir=_MEMORY if _MEMORY.is_dir() else None, prefix="sim-", ignore_cleanup_errors=True
    ) as root:
        try:
            yield from _outcomes(waiting, workers, partial(_answer, Path(root), mutate), running)
        finally:  # the caller has seen enough
            for connection, (_, pid, _) in running.items():
                _end(connection, pid)


def _outcomes(
    waiting: Iterator[int],
    workers: int,
    answer: Callable[[int, Connection], None],
    running: dict[Connection, tuple[int, int, float]],
) -> Iterator[Outcome]:
    while True:
        while len(running) < workers and (seed := next(waiting, None)) is not None:
            here, there = Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                answer(seed, there)
            there.close()
            running[here] = seed, pid, time.monotonic()
        if not running:
            return
        ready = wait([*running], timeout=1.0)
        for connection in [*running]:
            seed, pid, begun_s = running[connection]
            if connection in ready:
                try:
                    outcome = connection.recv()
                except EOFError:
                    outcome = Outcome(seed, "its process died", (), "", {})
            elif time.monotonic() - begun_s > patience(_TIMEOUT_S):
                outcome = Outcome(
                    seed, f"not at its end after {patience(_TIMEOUT_S):.0f} s", (), "", {}
                )
            else:
                continue
            del running[connection]
            _end(connection, pid)
            yield outcome


def _end(connection: Connection, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    connection.close()


def _answer(root: Path, mutate: Mutate, seed: int, connection: Connection) -> None:
    faulthandler.dump_traceback_later(patience(_TIMEOUT_S) - 5, exit=True)
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    directory = root / str(seed)
    try:
        directory.mkdir()
        connection.send(run_seed(seed, directory, mutate))
        connection.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)
