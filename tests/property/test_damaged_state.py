"""Whatever stands in the small files of a node and a store: our errors, or a state."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from support.harness.faults import more_memory_at_most
from support.harness.mutations import damage, damaged_json

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.consumer_filter_data import decode_filters, read_filters
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat
from rocketray.messaging.consumers.local_offsets import LocalOffsets
from rocketray.services.delays.done_marks import DoneMarks
from rocketray.store.retention import RetentionPolicy

EXAMPLES = int(os.environ.get("ROCKETRAY_TEST_STATES", "250"))
MEMORY_BYTES = 256 << 20
FILTERS = Path(__file__).parents[1] / "data/rocketmq/store-v1.filters.json"
MARKED = 3 * 64 * 1024 * 8


def try_often(made: Path, tmp_path: Path, use: Callable[[Path], None]) -> None:
    """Damage one file of *made*, or more, and use what is left."""
    files = [path.relative_to(made) for path in sorted(made.rglob("*.json*"))]
    assert files
    target = tmp_path / "damaged"
    with more_memory_at_most(MEMORY_BYTES):
        for seed in range(EXAMPLES):
            rng = random.Random(seed)
            shutil.copytree(made, target)
            path = target / rng.choice(files)
            path.write_bytes(damaged_json(path.read_bytes(), rng))
            try:
                with suppress(StreamError):
                    use(target)
            except BaseException as error:
                error.add_note(f"seed {seed}: {path.name}: {path.read_bytes()[:2000]!r}")
                raise
            shutil.rmtree(target)


def a_state(data: Path) -> ClusterState:
    return ClusterState(data, FilterRules.load(data), lambda: 5)


def test_a_coordinators_files(tmp_path: Path) -> None:
    made = tmp_path / "made"
    FilterRules(("tests.predicates",)).save(made)
    state = a_state(made)
    state.topics.create("Trade", 2, retention=RetentionPolicy(max_bytes=5))
    state.topics.create("Other", 1)
    for group, topic, subscription in (
        ("g", "Trade", Subscription.sql("amount > 10")),
        ("h", "Other", Subscription.tags("a || b")),
    ):
        beat = Heartbeat(group, topic, subscription, "one", "instance", frozenset(), {})
        state.heartbeat(beat)
        state.heartbeat(replace(beat, held=frozenset({0}), commits={0: 7}, number=1))
    state.stop()

    def use(data: Path) -> None:
        again = a_state(data)
        again.topics.deleted()
        again.administration.all()
        again.bitmap_orders()
        again.expiry_orders()
        again.save()

    try_often(made, tmp_path, use)


def test_the_offsets_of_a_broadcast_group(tmp_path: Path) -> None:
    made = tmp_path / "made"

    def opened(directory: Path) -> LocalOffsets:
        return LocalOffsets(directory, "one", "g", "Trade", lambda: 5)

    offsets = opened(made)
    offsets.commit({0: 7, 1: 9})
    offsets.close()

    def use(directory: Path) -> None:
        again = opened(directory)
        try:
            assert all(isinstance(again.get(queue), int) for queue in range(3))
        finally:
            again.close()

    try_often(made, tmp_path, use)


def test_a_brokers_filters(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    shutil.copy(FILTERS, made / "filters.json")
    assert decode_filters(FILTERS.read_bytes())

    def use(directory: Path) -> None:
        with suppress(ConfigError):
            for groups in read_filters(directory / "filters.json").values():
                assert all(data.bit_count > 0 for data in groups.values())

    try_often(made, tmp_path, use)


def test_marks_of_what_is_done(tmp_path: Path) -> None:
    made = tmp_path / "made"
    marks = DoneMarks(made / "done", 0)
    marks.mark(np.arange(0, MARKED, 7, dtype=np.int64))
    marks.close()
    for seed in range(EXAMPLES // 5):
        rng = random.Random(seed)
        target = tmp_path / "damaged"
        shutil.copytree(made, target)
        done = damage(target, rng)
        try:
            with suppress(StreamError):
                again = DoneMarks(target / "done", 0)
                try:
                    for start in rng.sample(range(MARKED), 5):
                        assert len(again.are_done(start, start + 100)) == 100
                        assert len(again.of(np.array([start, 0, MARKED]))) == 3
                    assert 0 <= again.first_open(MARKED) <= MARKED
                    again.mark(np.array([5], np.int64))
                finally:
                    again.close()
        except BaseException as error:
            error.add_note(f"seed {seed}: {done}")
            raise
        shutil.rmtree(target)
