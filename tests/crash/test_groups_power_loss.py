"""The coordinator's files after a power failure: one state of all groups, and none but the last two.

Every change of the files is repeated on a simulated disk, which knows what was synced. The power
fails before each sync, rename and removal, and after each answer.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sim.sim_disk import Bound, Outcome, SimDisk

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat

pytestmark = pytest.mark.proves(
    "durability",
    "Topics and groups are as they were last answered, wherever the power fails; exported "
    "in RocketMQ's forms",
)

BOUND = Bound(all_up_to=24, random_count=4)
DEAD = 2**31  # no process can have this id
NUMBERS = itertools.count(1)


class Watched:
    """The files in *root*, of which a simulated disk has every change."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._disk = SimDisk()
        self._lost: dict[object, Outcome] = {}
        sync, replace, unlink = os.fsync, Path.replace, Path.unlink

        def watched_sync(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            self._fail(path)
            sync(descriptor)
            if self._is_watched(path):
                self._disk.sync(self._simulated(path))

        def watched_replace(path: Path, target: Path) -> Path:
            self._fail(path)
            if self._is_watched(path):
                self._disk.rename(self._simulated(path), self._simulated(target))
            return replace(path, target)

        def watched_unlink(path: Path, *, missing_ok: bool = False) -> None:
            self._fail(path)
            if self._is_watched(path) and path.exists():
                self._disk.unlink(self._simulated(path))
            unlink(path, missing_ok=missing_ok)

        monkeypatch.setattr(os, "fsync", watched_sync)
        monkeypatch.setattr(Path, "replace", watched_replace)
        monkeypatch.setattr(Path, "unlink", watched_unlink)

    def take_lost(self) -> list[Outcome]:
        """Return what may remain of a power failure since the last call."""
        self._fail(self._root)
        found, self._lost = list(self._lost.values()), {}
        return found

    def _is_watched(self, path: Path) -> bool:
        return path.is_relative_to(self._root)

    def _simulated(self, path: Path) -> Path:
        return Path("/") / path.relative_to(self._root)

    def _fail(self, path: Path) -> None:
        """Note what a power failure leaves before a call for *path*."""
        if not self._is_watched(path):
            return
        for each in sorted(self._root.rglob("*")):
            simulated = self._simulated(each)
            if each.is_dir():
                if not self._disk.exists(simulated):
                    self._disk.make_directory(simulated)
                    self._disk.sync(simulated.parent)  # a start creates and syncs them
            elif not self._disk.exists(simulated) or (
                each.read_bytes() != self._disk.read(simulated, each.stat().st_size + 1)
            ):
                self._disk.write(simulated, each.read_bytes())
        for outcome in self._disk.outcomes(BOUND, random.Random(1)):
            self._lost.setdefault(outcome.key(), outcome)


def beat(*held: int, **commits: int) -> Heartbeat:
    offsets = {int(queue[1:]): offset for queue, offset in commits.items()}
    sql = Subscription.sql("amount > 10")
    return Heartbeat("g", "T", sql, "a", "i", frozenset(held), offsets, number=next(NUMBERS))


def opened(data: Path) -> ClusterState:
    return ClusterState(data, FilterRules(), lambda: 5)


def remaining(outcome: Outcome, data: Path) -> Path:
    """Write what is left as the files of *data*; the writer is dead."""
    for directory in outcome.directories:
        (data / directory.relative_to("/")).mkdir(parents=True, exist_ok=True)
    for path, content in outcome.files.items():
        name = path.name.replace(f".{os.getpid()}.tmp", f".{DEAD}.tmp")
        (data / path.parent.relative_to("/") / name).write_bytes(content)
    return data


def content(state: ClusterState) -> object:
    assert state.problems.lines() == []
    return sorted(state.topics.catalog.topics), state.registry.to_json()


STEPS: tuple[Callable[[ClusterState], object], ...] = (
    lambda state: state.topics.create("T", 2),
    lambda state: state.heartbeat(beat()),
    lambda state: state.heartbeat(beat(0, 1, q0=3, q1=4)),
    lambda state: state.administration.move_offsets("g", "T", {0: 1}),
    lambda state: state.heartbeat(beat(q0=5, q1=7)),
    lambda state: state.heartbeat(beat(0, 1)),
    lambda state: state.save(),
    lambda state: state.leave(beat(q0=8)),
    lambda state: state.stop(),
    lambda state: state.delete_topic("T"),
)


def test_groups_are_as_they_were_last_answered_wherever_the_power_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, numbers, total = tmp_path / "node", itertools.count(), 0
    node.mkdir()
    watched = Watched(node, monkeypatch)

    def left(outcome: Outcome) -> object:
        return content(opened(remaining(outcome, tmp_path / f"left {next(numbers)}")))

    state, before = opened(node), content(opened(tmp_path / "new"))
    for step, act in enumerate(STEPS):
        act(state)
        meanwhile = watched.take_lost()
        answered = watched.take_lost()
        after = content(opened(shutil.copytree(node, tmp_path / f"copy {step}")))
        assert all(left(outcome) == after for outcome in answered), f"after step {step}"
        for outcome in meanwhile:
            assert left(outcome) in (before, after), (step, outcome.files)
        total += len(meanwhile)
        before = after
    assert total > 100
