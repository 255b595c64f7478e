"""Registered filters: when they are born, die and come back, their file, and their bitmaps."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.bitmaps import bitmap_of
from support.nodes.stores import FakeClock
from support.rocketmq.golden import DATA, golden_rows

from rocketray.base.property_string import encode_properties
from rocketray.errors import ConfigError
from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.consumer_filter_data import (
    ConsumerFilterData,
    decode_filters,
    encode_filters,
    read_filters,
)
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription

GOLDEN = DATA / "rocketmq" / "store-v1.filters.json"
DAY_MS = 24 * 60 * 60 * 1000


def sql(topic: str, expression: str, version: int = 1) -> ConsumerSubscription:
    return ConsumerSubscription(topic, Subscription.sql(expression, "rocketmq"), version)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000_000)


@pytest.fixture
def manager(clock: FakeClock) -> ConsumerFilterManager:
    return ConsumerFilterManager(clock_ms=clock)


def found(manager: ConsumerFilterManager, topic: str, group: str) -> ConsumerFilterData:
    data = manager.find(topic, group)
    assert data is not None
    return data


def test_registering_what_rocketmq_registered_writes_its_file_to_the_byte(clock: FakeClock) -> None:
    # From an empty manager, so that positions, sizes and times are made here, not copied.
    manager = ConsumerFilterManager(clock_ms=clock)
    for topic, groups in read_filters(GOLDEN).items():
        for group, data in groups.items():
            clock.now_ms = data.born_time_ms
            others = [
                sql(other, one.subscription.expression)
                for other in ("TopicA", "TopicB")
                if (one := manager.find(other, group)) is not None
            ]
            manager.register(group, [*others, sql(topic, data.subscription.expression)])
    assert encode_filters(manager.filters) == GOLDEN.read_bytes().rstrip()


def test_the_bitmaps_of_all_messages_are_rocketmqs() -> None:
    manager = ConsumerFilterManager(clock_ms=FakeClock())
    manager.load(GOLDEN)
    rows = [row for row in golden_rows("store-v1") if "blank" not in row]
    for row in rows:
        expected = base64.b64decode(row["cq"]["ext"]["bitmap"])
        assert bitmap_of(manager, row["topic"], row["properties"]) == expected
    assert len(rows) == 600


def test_a_topic_without_filters_has_no_bitmap_and_no_match_has_an_empty_one(
    manager: ConsumerFilterManager,
) -> None:
    assert bitmap_of(manager, "T", {"a": "1"}) is None
    manager.register("g", [sql("T", "a > 5")])
    assert bitmap_of(manager, "T", {"a": "1"}) == bytes(14)
    assert bitmap_of(manager, "T", {"a": "not a number"}) == bytes(14)
    assert bitmap_of(manager, "T", None) == bytes(14)
    assert bitmap_of(manager, "T", {"a": "6"}) != bytes(14)


def test_only_sql92_that_parses_is_registered(manager: ConsumerFilterManager) -> None:
    manager.register(
        "g", [ConsumerSubscription("T", Subscription.tags("a"), 1), sql("U", ""), sql("V", "a >")]
    )
    assert not manager.filters


def test_a_new_expression_is_born_again_and_an_old_version_is_passed_over(
    manager: ConsumerFilterManager, clock: FakeClock
) -> None:
    manager.register("g", [sql("T", "a > 5", 2)])
    born_ms = clock.now_ms
    clock.now_ms += 10
    manager.register("g", [sql("T", "a > 6", 1)])
    manager.register("g", [sql("T", "a > 6", 2)])
    assert found(manager, "T", "g").subscription.expression == "a > 5"
    manager.register("g", [sql("T", "a > 5", 3)])
    assert (found(manager, "T", "g").born_time_ms, found(manager, "T", "g").client_version) == (
        born_ms,
        3,
    )
    manager.register("g", [sql("T", "a > 6", 4)])
    data = found(manager, "T", "g")
    assert (data.subscription.expression, data.born_time_ms) == ("a > 6", born_ms + 10)
    assert not data.is_message_in_live(born_ms + 10)
    assert data.is_message_in_live(born_ms + 11)
    manager.register("g", [sql("T", "a >", 5)])
    assert manager.find("T", "g") is None


def test_a_group_that_leaves_is_dead_until_it_comes_back_and_keeps_its_birth(
    manager: ConsumerFilterManager, clock: FakeClock
) -> None:
    manager.register("g", [sql("T", "a > 5"), sql("U", "b > 5")])
    born_ms = clock.now_ms
    clock.now_ms += 10
    manager.register("g", [sql("T", "a > 5")])
    assert found(manager, "U", "g").is_dead
    assert not found(manager, "T", "g").is_dead
    manager.register("g", [])
    assert found(manager, "T", "g").dead_time_ms == born_ms + 10
    manager.register("g", [sql("T", "a > 5")])
    data = found(manager, "T", "g")
    assert (data.is_dead, data.dead_time_ms, data.born_time_ms) == (False, 0, born_ms)


def test_a_restart_keeps_the_filters_and_takes_their_consumers_to_be_gone(
    manager: ConsumerFilterManager, clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "consumerFilter.json"
    manager.register("g", [sql("T", "name = '键'", 7)])
    manager.save(path)
    clock.now_ms += 60_000
    again = ConsumerFilterManager(clock_ms=clock)
    again.load(path)
    data = found(again, "T", "g")
    assert data.dead_time_ms == clock.now_ms - 30_000
    again.register("g", [sql("T", "name = '键'", 7)])
    assert found(again, "T", "g") == found(manager, "T", "g")
    again.register("g", [])
    clock.now_ms += DAY_MS
    again.save(path)
    assert read_filters(path) == {}
    assert list(read_filters(path.with_name("consumerFilter.json.bak"))) == ["T"]


def test_a_process_that_dies_while_it_saves_leaves_the_filters(
    manager: ConsumerFilterManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "consumerFilter.json"
    manager.register("g", [sql("T", "a > 5")])
    manager.save(path)
    rename = Path.replace
    for deadly in range(2):
        renamed: list[Path] = []

        def die(source: Path, target: Path) -> Path:
            if len(renamed) == deadly:  # noqa: B023 - called in this turn
                raise KeyboardInterrupt
            renamed.append(target)  # noqa: B023 - the same
            return rename(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", die)
            with pytest.raises(KeyboardInterrupt):
                manager.save(path)
        assert list(read_filters(path)) == ["T"]


def test_filters_for_bitmaps_of_another_size_are_not_taken_over(
    manager: ConsumerFilterManager, clock: FakeClock, tmp_path: Path
) -> None:
    manager.register("g", [sql("T", "a > 5")])
    other = replace(found(manager, "T", "g"), bit_count=manager.bit_count + 8)
    (tmp_path / "f").write_bytes(encode_filters({"T": {"g": other}}))
    again = ConsumerFilterManager(clock_ms=clock)
    again.load(tmp_path / "f")
    assert not again.filters


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bornTime", "1"),
        ("expression", None),
        ("bloomFilterData", {"bitNum": 8, "bitPos": [8]}),
        ("bloomFilterData", {"bitNum": 1 << 40, "bitPos": [8]}),
        ("bloomFilterData", None),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    content = json.loads(GOLDEN.read_text("utf-8"))
    content["filterDataByTopic"]["TopicA"]["groupFilterData"]["g1"][field] = value
    path = tmp_path / "f"
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ConfigError, match="has no valid consumer filters"):
        read_filters(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_stands_in_the_file_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(GOLDEN.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw) - 1))
        noise = st.binary(max_size=6) | st.sampled_from([b"null", b"-1", b"[]", b"{}", b'"a"'])
        raw[start : start + data.draw(st.integers(0, 6))] = data.draw(noise)
    try:
        filters = decode_filters(bytes(raw))
    except ValueError:
        return
    for groups in filters.values():
        for one in groups.values():
            assert all(0 <= bit < one.bit_count for bit in one.bit_positions)
            one.may_match(bytes(one.bit_count // 8))


def test_an_expression_of_another_dialect_is_left_out() -> None:
    raw = GOLDEN.read_bytes().replace(b"price > 50.5", b"price >>> 50")
    assert list(decode_filters(raw)["TopicA"]) == ["g1", "g3"]


@pytest.mark.parametrize(
    ("dialect", "amount", "is_set"),
    [
        ("rocketmq", "120", True),
        ("rocketmq", "99", False),
        ("rocketmq", "120.0", False),  # RocketMQ fails, which is no
        ("rocketray", "120", True),
        ("rocketray", "99", False),
        ("rocketray", "120.0", True),  # RocketMQ fails: look
        ("rocketray", "99.0", True),
        ("rocketray", "none", True),
        ("rocketray", None, False),
    ],
)
def test_where_rocketmq_fails_the_bit_says_look(
    dialect: Dialect, amount: str | None, is_set: bool
) -> None:
    manager = ConsumerFilterManager(clock_ms=lambda: 0)
    wanted = Subscription("SQL92", "amount BETWEEN 100 AND 500", dialect=dialect, rules=1)
    manager.register("g", [ConsumerSubscription("T", wanted, 1)])
    properties = {"x": "1"} if amount is None else {"amount": amount}
    bitmap = bitmap_of(manager, "T", properties)
    assert bitmap is not None
    data = manager.find("T", "g")
    assert data is not None
    assert data.may_match(bitmap) is is_set
    text = encode_properties(properties).encode()
    whole = np.frombuffer(text, np.uint8), np.zeros(1, np.int64), np.array([len(text)], np.int64)
    many = manager.bitmaps("T", *whole)
    assert many is not None
    assert many[0].tobytes() == bitmap


def test_the_same_text_in_another_dialect_is_born_again() -> None:
    clock = FakeClock()
    manager = ConsumerFilterManager(clock_ms=clock)
    manager.register("g", [sql("T", "a > 1")])
    first = manager.find("T", "g")
    assert first is not None
    clock.now_ms += 1000
    other = Subscription("SQL92", "a > 1", dialect="rocketray", rules=2)
    manager.register("g", [ConsumerSubscription("T", other, 2)])
    second = manager.find("T", "g")
    assert second is not None
    assert second.born_time_ms == first.born_time_ms + 1000
    assert second.subscription == other
    assert decode_filters(encode_filters(manager.filters)) == manager.filters


def test_rules_that_are_not_known_are_left_out() -> None:
    raw = GOLDEN.read_bytes().replace(
        b'"expression":"price > 50.5"',
        b'"expression":"price > 50.5","dialect":"rocketray","dialectRules":99',
    )
    assert list(decode_filters(raw)["TopicA"]) == ["g1", "g3"]
