"""Bitmaps made of many messages at once are those made of one after the other."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from oracles.bitmaps import bitmap_of
from support.models.random_sql import random_expression, random_message
from support.nodes.stores import FakeClock

from rocketray.base.property_string import decode_properties, encode_properties
from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription

HISTORIES = 15
STEPS = 8
TOPICS = ("T", "U")
DIALECTS_AND_RULES: tuple[tuple[Dialect, int], ...] = (
    *(("rocketmq", 1), ("rocketray", 1), ("rocketray", 2)),
)
FIXED = ("TRUE", "a IS NULL OR a IS NOT NULL", "NOT (a > 5)")  # no property at all, all, errors


def one_expression(rng: random.Random) -> str:
    return rng.choice(FIXED) if rng.random() < 0.2 else random_expression(rng)


def change(manager: ConsumerFilterManager, rng: random.Random, version: int, path: Path) -> None:
    """What may befall the filters of a store: groups come, change, go; the store is restarted."""
    kind = rng.random()
    group = f"group-{rng.randrange(5)}"
    if kind < 0.7:
        topics = rng.sample(TOPICS, rng.randint(1, 2))
        subscriptions = [
            ConsumerSubscription(
                topic,
                Subscription("SQL92", one_expression(rng), "stop", *rng.choice(DIALECTS_AND_RULES)),
                version,
            )
            for topic in topics
        ]
        manager.register(group, subscriptions)
    elif kind < 0.85:
        manager.register(group, [])
    else:
        manager.save(path)
        manager.load(path)


def test_bitmaps_of_many_are_those_of_each(rng: random.Random, tmp_path: Path) -> None:
    matched = 0
    for _ in range(HISTORIES):
        clock = FakeClock()
        manager = ConsumerFilterManager(clock_ms=clock)
        for version in range(1, STEPS + 1):
            clock.now_ms += rng.choice((1, 1000, 24 * 60 * 60 * 1000))
            change(manager, rng, version, tmp_path / "consumerFilter.json")
            data = bytearray(b"before")
            strings = []
            for _ in range(rng.choice((0, 1, 40, 1100))):
                string = encode_properties(random_message(rng)).encode()
                if rng.random() < 0.05:
                    string = string.replace(b"e", b"\xff") + b"a\x01\x80"  # not UTF-8
                strings.append((len(data), len(string), decode_properties(string)))
                data += string
            starts = np.array([start for start, _, _ in strings], np.int64)
            sizes = np.array([size for _, size, _ in strings], np.int64)
            for topic in TOPICS:
                found = manager.bitmaps(topic, np.frombuffer(bytes(data), np.uint8), starts, sizes)
                each = [bitmap_of(manager, topic, properties) for _, _, properties in strings]
                if found is None:
                    assert not any(each)
                    continue
                assert [row.tobytes() for row in found] == each
                matched += int(np.count_nonzero(found.any(axis=1)))
    assert matched > 1000
