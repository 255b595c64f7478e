"""Values of tables, found by the index of a changelog or by reading it, beside what the app has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import faust
import pytest
from support.harness.patience import until
from support.nodes.apps import running
from support.nodes.local_node import SEGMENT, LocalNode
from support.nodes.stock_apps import stock_app

from rocketray.broker.topics.ownership_record import OWNERSHIP_KEY, ownership_record
from rocketray.errors import ConfigError, CorruptRecordError
from rocketray.message import Message
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.retention import RetentionPolicy
from rocketray.topology.app.app import App
from rocketray.topology.tables import part_reader
from rocketray.topology.tables.changelog import change_message
from rocketray.topology.tables.lookup import TableValue, keys_meant, values_of

NAME = "app-t-changelog"
TOPIC = App("app").topic(NAME, value_serializer="raw")
FAR = timedelta(days=10_000)
T0 = 1_700_000_000.0  # begins a window of 10 s


class Step(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    number: int
    at: float


def store(node: LocalNode, *changes: tuple[bytes, bytes | None], queue_id: int = 0) -> None:
    """Store changes of a table as its app does."""
    node.topics.ensure(NAME, 2, retention=RetentionPolicy(compacts=True))
    with node.producer() as producer:
        messages = [change_message(TOPIC, key, value) for key, value in changes]
        producer.send_many(NAME, messages, queue_id=queue_id)


def found(node: LocalNode, *keys: bytes) -> list[TableValue]:
    return values_of(node, node.topics.get(NAME), keys)


def get(node: LocalNode, text: str) -> list[tuple[Any, bytes]]:
    """The windows and values of what *text* may mean."""
    return [(each.window, each.value) for each in found(node, *keys_meant(text))]


def run(
    node: LocalNode,
    declare: Callable[[Any], Any],
    *changes: Callable[[Any], Any],
    stock: bool = False,
) -> None:
    """Run an app whose table ``t`` gets *changes*, one for each message."""

    async def scenario() -> None:
        app = stock_app(node, "app") if stock else App("app", connection=node)
        topic = app.topic("T", key_type=str, value_type=Step, partitions=2)
        table = declare(app)
        seen: list[int] = []

        async def reader(stream: Any) -> None:
            async for step in stream:
                changes[step.number](table)
                seen.append(step.number)

        app.agent(topic, name="reader")(reader)
        async with running(app):
            for number in range(len(changes)):
                await topic.send(key="k", value=Step(number=number, at=T0 + 10 * number))
            await until(lambda: len(seen) == len(changes))

    asyncio.run(scenario())


def assign(key: Any, value: Any) -> Callable[[Any], Any]:
    return lambda table: table.__setitem__(key, value)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues whose changes were all read."""
    read: list[str] = []

    class Noted(part_reader.PartReader):
        async def recover(self, persisted: int | None = None) -> int:
            read.append(self.name)
            return await super().recover(persisted)

    monkeypatch.setattr(part_reader, "PartReader", Noted)
    return read


def test_keys_are_found_as_an_app_writes_them(node: LocalNode, readings: list[str]) -> None:
    changes = [
        assign("apple", 1),
        assign("apple", 2),
        assign("two words", {"a": [1.5, None]}),
        assign("gone", 1),
        lambda table: table.pop("gone"),
        assign(7, "number"),
        assign("8", "text"),
        assign("größe\n", 5),
        assign(("eu", 3), 4),
    ]
    run(node, lambda app: app.Table("t"), *changes)
    assert get(node, "apple") == [(None, b"2")]
    assert get(node, "two words") == [(None, b'{"a":[1.5,null]}')]
    assert get(node, "gone") == []
    assert get(node, "7") == [(None, b'"number"')]
    assert get(node, "8") == [(None, b'"text"')]
    assert get(node, '["eu", 3]') == [(None, b"4")]
    assert get(node, "größe\n") == [(None, b"5")]
    assert readings == [], "the index has them"
    assert get(node, "Apple") == []
    assert readings == [f"{NAME}/0", f"{NAME}/1"], "one of the keys is a pair: another may be, too"
    [one] = found(node, b'"apple"')
    stored = node.messages.at(NAME, one.change.queue_id, one.change.queue_offset)
    assert one.change == stored


@pytest.mark.parametrize(
    "key", [b"\x00\xff", OWNERSHIP_KEY.encode(), b"", b"a\x01", b"a\x02b", b"text"]
)
def test_keys_of_bytes_are_found(node: LocalNode, key: bytes) -> None:
    store(node, (key, b"1"), (b"other", b"2"))
    assert [each.value for each in found(node, key)] == [b"1"]
    assert found(node, key + b"\xfe") == []


def test_what_a_key_may_mean() -> None:
    assert keys_meant("a b") == [b'"a b"', b"a b"]
    assert keys_meant("7") == [b'"7"', b"7"]
    assert keys_meant("[1, 2]") == [b'"[1, 2]"', b"[1, 2]", b"[1,2]"]
    assert keys_meant("\udcff") == [b"\xff"], "an argument of a shell that is no text"


def test_what_is_no_change_is_left_out(node: LocalNode) -> None:
    store(node, (b'"k"', b"1"))
    with node.producer() as producer:
        other, owner = Message(NAME, b"2", keys=['"k"']), ownership_record(NAME, 7)
        producer.send_many(NAME, [other, owner], queue_id=0)
    assert get(node, "k") == [(None, b"1")]
    assert get(node, OWNERSHIP_KEY) == []
    assert get(node, "m") == []


def test_keys_that_the_index_takes_for_one_are_told_apart(
    node: LocalNode, readings: list[str]
) -> None:
    store(node, (b"a b", b"blank"), (b"a\xc2\xa0b", b"no-break"))
    assert get(node, "a\u00a0b") == [(None, b"no-break")]
    assert readings == []
    assert get(node, "a b") == [(None, b"blank")]
    assert readings, "the index has the other key's change last"


def test_an_index_that_is_damaged_is_not_believed(
    node: LocalNode, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(node, (b'"k"', b"1"), (b'"k"', b"2"))
    index = node.shard(NAME, 0).writer.store._files.index
    monkeypatch.setattr(index, "search", lambda _hash: iter(()))
    assert (get(node, "k"), readings) == ([], [])
    for file in index.files:
        file.damaged_slots |= {*range(file.hash_slots)}
    assert get(node, "k") == [(None, b"2")]
    assert len(readings) == 2


def test_a_change_that_cannot_be_read_is_an_error(node: LocalNode) -> None:
    store(node, (b'"k"', b"old"), (b'"k"', b"newest"), (b'"m"', b"1"))
    [log] = (shard_directory(node.data, NAME, 0) / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(file.read(SEGMENT).index(b"newest"))
        file.write(b"N")
    assert get(node, "m") == [(None, b"1")]
    with pytest.raises(CorruptRecordError):
        get(node, "k")


def test_without_a_value_a_table_without_pairs_is_not_read(
    node: LocalNode, readings: list[str]
) -> None:
    node.topics.ensure(NAME, 2, retention=RetentionPolicy(compacts=True))
    assert (get(node, "k"), readings) == ([], [])
    store(node, (b'"m"', b"1"), (b"7", None))
    with node.producer() as producer:
        producer.send_many(NAME, [ownership_record(NAME, 7)], queue_id=1)
    assert get(node, "k") == []
    assert len(readings) == 2, "nothing is known of the second queue"
    store(node, (b'"l"', b"1"), queue_id=1)
    assert get(node, "k") == []
    assert len(readings) == 2


def test_compaction_keeps_value_and_time_and_the_index_finds_both(
    node: LocalNode, readings: list[str]
) -> None:
    store(node, (b'"rare"', b"1"), (b'"gone"', b"1"), (b'"gone"', None))
    [before] = found(node, b'"rare"')
    body = bytes(100_000)
    store(node, *[(b'"often"', body + b"%d" % number) for number in range(40)])
    shard = node.shard(NAME, 0)
    shard.flush()
    shard.expire(RetentionPolicy(compacts=True), None)
    assert shard.statistics().min_queue_offset > 2
    [after] = found(node, b'"rare"')
    assert (after.value, after.change.body) == (b"1", b"1")
    assert after.change.queue_offset > before.change.queue_offset
    assert after.change.born_timestamp_ms == before.change.born_timestamp_ms
    assert readings == []
    assert get(node, "gone") == []


def test_each_part_of_a_table_has_a_value_of_its_own(node: LocalNode) -> None:
    store(node, (b'"k"', b"1"), (b'"m"', b"1"), queue_id=0)
    store(node, (b'"k"', b"2"), (b'"m"', None), queue_id=1)
    assert [(each.change.queue_id, each.value) for each in found(node, b'"k"')] == [
        (1, b"2"),
        (0, b"1"),
    ]
    assert get(node, "m") == [(None, b"1")]


def add(key: str, member: Any = 1) -> Callable[[Any], Any]:
    """A change that counts, or adds a member to a set."""

    def change(table: Any) -> None:
        if isinstance(member, int):
            table[key] += member
        else:
            table[key].add(member)

    return change


def tumbling(table: Any) -> Any:
    return table.tumbling(10.0, expires=FAR).relative_to_field(Step.at)


def test_the_windows_of_a_key_are_found_newest_first(node: LocalNode) -> None:
    changes = [add("home"), add("homes"), add("home", 5), assign("home", 3)]
    run(node, lambda app: tumbling(app.Table("t", default=int)), *changes)
    assert get(node, "home") == [
        ((T0 + 30, T0 + 39.9), b"3"),
        ((T0 + 20, T0 + 29.9), b"5"),
        ((T0, T0 + 9.9), b"1"),
    ]
    assert get(node, "hom") == []
    assert get(node, f'["home", [{T0}, {T0 + 9.9}]]') == [(None, b"1")]


def test_windows_may_have_bounds_of_any_kind(node: LocalNode) -> None:
    key = b'["k",%b]'
    store(node, (key % b"[50,70]", b"2"), (key % b"[60.5,70]", b"3"), (key % b"[3,1]", b"4"))
    assert get(node, "k") == [((60.5, 70), b"3"), ((50, 70), b"2")]


def test_the_members_of_a_set_are_found(node: LocalNode, readings: list[str]) -> None:
    changes = [
        add("home", "a"),
        add("home", "b"),
        add("home", (1, 2)),
        lambda table: table["home"].discard("a"),
        add("other", "c"),
    ]
    run(node, lambda app: app.SetTable("t"), *changes)
    assert get(node, "home") == [(None, b'["b", [1, 2]]')]
    assert get(node, "hom") == []
    assert len(readings) == 4
    assert get(node, '["home", "b"]') == [(None, b"1")]


def test_the_sets_of_windows_are_found(node: LocalNode) -> None:
    changes = [add("home", "a"), add("home", "b"), add("other", "c")]
    run(node, lambda app: tumbling(app.SetTable("t")), *changes)
    assert get(node, "home") == [
        ((T0 + 10, T0 + 19.9), b'["b"]'),
        ((T0, T0 + 9.9), b'["a"]'),
    ]


@pytest.mark.parametrize("kind", ["GlobalTable", "SetGlobalTable"])
def test_global_tables_are_found(node: LocalNode, kind: str) -> None:
    is_set = kind == "SetGlobalTable"
    run(node, lambda app: getattr(app, kind)("t", default=int), add("k", "a" if is_set else 1))
    assert get(node, "k") == [(None, b'["a"]' if is_set else b"1")]


def test_pairs_of_another_table_are_no_members(node: LocalNode) -> None:
    run(node, lambda app: app.Table("t"), assign(("k", "m"), 1), assign(("k", "n"), 2))
    assert get(node, "k") == []
    assert get(node, '["k","n"]') == [(None, b"2")]


@pytest.mark.parametrize("text", ["[1", "1,2", '"k', "k"])
def test_a_part_of_a_key_is_none(node: LocalNode, text: str) -> None:
    store(node, (b"[[1,2],[3.0,4.0]]", b"1"), (b'["k,",[3.0,4.0]]', b"1"))
    assert get(node, text) == []


def test_tables_of_stock_apps_are_found(node: LocalNode) -> None:
    run(node, lambda app: app.Table("t"), assign("k", 1), assign("l", 2), stock=True)
    assert get(node, "k") == [(None, b"1")]
    assert get(node, "m") == []


def test_the_sets_of_stock_apps_are_not_said_to_be_empty(node: LocalNode) -> None:
    run(node, lambda app: app.SetTable("t"), add("k", "a"), stock=True)
    with pytest.raises(ConfigError, match="may be of a stock Faust app with sets"):
        get(node, "k")
    assert get(node, "l") == []
