"""``store.json`` and its copy, when the power fails before any call that writes one of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.stores import SMALL, FakeClock, kill, message
from support.sim.sim_disk import Bound, PowerLostError, SimDisk, power_fails_after

from rocketray.store.files.store_settings import allow_units, read_settings
from rocketray.store.message_store import MessageStore

pytestmark = pytest.mark.proves(
    "durability",
    "A power failure while `store.json` or its copy is written leaves a store that opens",
)

STORE = Path("/store")
SETTINGS, COPY = STORE / "store.json", STORE / "store.json.bak"
ALL = Bound(all_up_to=256, random_count=64)
WITH_UNITS = replace(SMALL, consume_queue_ext=True)


def opened(disk: SimDisk) -> MessageStore:
    known = read_settings(STORE, disk)
    config = SMALL if known is None else None
    return MessageStore(STORE, config, clock_ms=FakeClock(), file_system=disk)


def created() -> SimDisk:
    """A disk with a store that was closed; all of it is durable."""
    disk = SimDisk()
    store = opened(disk)
    store.put([message(1)], 0)
    store.close()
    disk.sync(COPY)
    disk.sync(STORE)
    return disk


def change(disk: SimDisk) -> None:
    allow_units(STORE, SMALL, disk)


def of_the_release_before() -> SimDisk:
    disk = created()
    disk.unlink(COPY)
    disk.sync(STORE)
    return disk


def torn() -> SimDisk:
    disk = created()
    disk.write(SETTINGS, disk.content()[SETTINGS][:100])
    disk.sync(SETTINGS)
    return disk


def open_and_die(disk: SimDisk) -> None:
    kill(opened(disk))


@pytest.mark.parametrize(
    ("begin", "act", "allowed"),
    [
        pytest.param(SimDisk, open_and_die, {SMALL}, id="created"),
        pytest.param(of_the_release_before, open_and_die, {SMALL}, id="copied"),
        pytest.param(torn, open_and_die, {SMALL}, id="repaired"),
        pytest.param(created, change, {SMALL, WITH_UNITS}, id="changed"),
    ],
)
def test_after_a_power_failure_the_settings_are_there_or_nothing_was_stored(
    rng: random.Random,
    begin: Callable[[], SimDisk],
    act: Callable[[SimDisk], None],
    allowed: set[object],
) -> None:
    is_complete = False
    for calls in itertools.count():
        disk = begin()
        disk.before = power_fails_after(calls)
        try:
            act(disk)
        except PowerLostError:
            pass
        else:
            is_complete = True
        disk.before = lambda _name, _path: None
        for outcome in disk.outcomes(ALL, rng):
            left = outcome.disk()
            store = opened(left)
            assert store.config in allowed
            assert left.content()[SETTINGS] == left.content()[COPY]
            store.put([message(2)], 0)
            store.close()
        if is_complete:
            return
