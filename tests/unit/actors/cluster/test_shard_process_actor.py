"""What the process of the shards gives to its parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rocketray.actors.cluster import shard_process_actor
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.runtime.files.home import Home
from rocketray.store.age_clock import SETTLING_MS, AgeClock
from rocketray.testing import Clock


def test_shards_and_services_have_one_clock_by_which_a_step_makes_nothing_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(shard_process_actor, "system_clock_ms", clock)
    monkeypatch.setattr(shard_process_actor, "steady_clock_ms", clock.elapsed)
    monkeypatch.setattr(shard_process_actor, "_allow_many_files", lambda: None)
    given: list[Callable[[], int]] = []

    def part(*_: object, clock_ms: Callable[[], int], **__: object) -> SimpleNamespace:
        given.append(clock_ms)
        return SimpleNamespace(shard=None, serve=lambda _: None, start=lambda: None)

    monkeypatch.setattr(shard_process_actor, "ShardProcess", part)
    monkeypatch.setattr(shard_process_actor, "SystemServices", part)
    monkeypatch.setattr(shard_process_actor, "ShardThreads", lambda *_, **__: None)
    home = SimpleNamespace(directory=lambda: tmp_path)
    shard_process_actor.ShardProcessActor(cast("Home", home), SHARED_PROCESS, {}, 0)

    shards, services = given
    ages = AgeClock.of(shards)
    assert ages is shards is services
    clock.advance(milliseconds=SETTLING_MS)
    stored_ms, seen_ms = ages(), ages.steady_ms()
    clock.jump(seconds=4 * 86_400)
    assert ages.age_ms(stored_ms, seen_ms, ages.steady_ms()) == 0
