"""``rocketray tables``: which tables there are, and what is printed of a value."""

from __future__ import annotations

import base64

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.cli.terminal.output import as_time
from rocketray.store.retention import KEEP_ALL, RetentionPolicy
from rocketray.topology.app.app import App
from rocketray.topology.tables.changelog import change_message

COMPACTS = RetentionPolicy(compacts=True)


def store(
    node: LocalNode, table: str, *changes: tuple[bytes, bytes | None], queue_id: int = 0
) -> None:
    """Store changes of a table as its app does."""
    name = f"{table}-changelog"
    node.topics.ensure(name, 2, retention=COMPACTS, internal=True)
    topic = App("app").topic(name, value_serializer="raw")
    with node.producer() as producer:
        messages = [change_message(topic, key, value) for key, value in changes]
        producer.send_many(name, messages, queue_id=queue_id)


@pytest.fixture
def shop(node: LocalNode) -> LocalNode:
    """A node with tables of two apps, and a topic whose name alone is that of a changelog."""
    store(
        node, "shop-totals", (b'"eu"', b'{"sum":1.50,"name":"gr\xc3\xbc\xc2\x9bn"}'), (b"7", b"8")
    )
    store(node, "shop-last", (b"\x00\xff", b"\x00raw"))
    store(node, "till-totals", (b'"eu"', b"2"))
    store(node, "shop-eu%2Esums", (b'"eu"', b"3"))
    node.topics.ensure("plain-changelog", 1, retention=KEEP_ALL)
    return node


def test_tables_are_listed_by_their_changelogs(shop: LocalNode) -> None:
    found = run_here("tables", "list", "--json").lines()
    assert [each["table"] for each in found] == [
        "shop-eu%2Esums",
        "shop-last",
        "shop-totals",
        "till-totals",
    ]
    stored = shop.stored("shop-totals-changelog")
    assert found[2] == {
        "table": "shop-totals",
        "topic": "shop-totals-changelog",
        "queues": 2,
        "changes": 2,
        "bytes": sum(one.size for one in stored),
    }
    assert run_here("tables", "list").out.split()[:4] == ["table", "queues", "changes", "bytes"]


def test_a_value_is_printed_as_it_is_and_can_be_read(shop: LocalNode) -> None:
    assert run_here("tables", "get", "shop-totals", "eu").out == (
        '{"sum":1.50,"name":"grü\\u009bn"}\n'
    )
    assert run_here("tables", "get", "till-totals", "eu").out == "2\n"
    assert run_here("tables", "get", "shop-totals", "7").out == "8\n"
    key = base64.b64encode(b"\x00\xff").decode()
    assert run_here("tables", "get", "last", key, "--base64").out == "·raw\n"
    assert run_here("tables", "get", "last", "eu", "--base64").code == 2
    store(shop, "shop-totals", (b'"list"', b'[1,\n\t"a\xc2\x85b"]'))
    assert run_here("tables", "get", "shop-totals", "list").out == '[1,  "a\\u0085b"]\n'


def test_json_has_the_place_and_the_time_of_the_change(shop: LocalNode) -> None:
    [found] = run_here("tables", "get", "shop-totals", "eu", "--json").lines()
    change = shop.messages.at("shop-totals-changelog", 0, 0)
    assert change
    body = '{"sum":1.50,"name":"grü\u009bn"}'.encode()
    assert found == {
        "table": "shop-totals",
        "key": "eu",
        "window": None,
        "value": {"sum": 1.5, "name": "grü\u009bn"},
        "body": base64.b64encode(body).decode(),
        "topic": "shop-totals-changelog",
        "queueId": 0,
        "queueOffset": 0,
        "bornTimestamp": change.born_timestamp_ms,
    }
    [found] = run_here("tables", "get", "last", "AP8=", "--base64", "--json").lines()
    assert (found["key"], found["value"]) == (None, None)
    store(shop, "shop-last", (b"raw key", b"NaN"))
    [found] = run_here("tables", "get", "last", "raw key", "--json").lines()
    assert (found["key"], found["value"]) == ("raw key", None), "NaN is no JSON"


def test_a_key_without_a_value_ends_with_1(shop: LocalNode) -> None:
    store(shop, "till-totals", (b'"us"', b"1"), (b'"us"', None))
    for key in ("us", "nobody"):
        for option in ([], ["--json"]):
            done = run_here("tables", "get", "till-totals", key, *option)
            assert (done.code, done.out) == (1, "")
            assert done.err == f"table till-totals has no committed value of the key {key}\n"


def test_a_table_is_named_without_its_app_if_no_other_app_has_one(shop: LocalNode) -> None:
    assert run_here("tables", "get", "last", "none").code == 1
    assert run_here("tables", "get", "eu.sums", "eu").out == "3\n"
    two = run_here("tables", "get", "totals", "eu")
    assert (two.code, two.out) == (1, "")
    assert "table 'totals' may be shop-totals or till-totals; name the app, too" in two.err
    none = run_here("tables", "get", "shop-total", "eu")
    assert (none.code, none.out) == (1, "")
    assert "there is no table 'shop-total', but shop-totals" in none.err
    far = run_here("tables", "get", "zzz", "eu")
    assert "no table 'zzz', but shop-eu%2Esums, shop-last, shop-totals, till-totals;" in far.err


def test_without_tables_it_says_so(node: LocalNode) -> None:
    assert run_here("tables", "list", "--json").lines() == []
    assert (
        "there is no table 'counts'; a table is there"
        in run_here("tables", "get", "counts", "k").err
    )


def test_several_values_are_told_apart(node: LocalNode) -> None:
    store(node, "a-kinds", (b'"7"', b"1"), (b"7", b"2"))
    table = run_here("tables", "get", "kinds", "7").out.splitlines()
    assert table[0].split() == ["key", "value"]
    assert sorted(line.split()[0] for line in table[2:]) == ['"7"', "7"]
    keys = [each["key"] for each in run_here("tables", "get", "kinds", "7", "--json").lines()]
    assert sorted(keys, key=repr) == ["7", 7]

    store(node, "a-parts", (b'"k"', b"1"))
    store(node, "a-parts", (b'"k"', b"2"), queue_id=1)
    table = run_here("tables", "get", "parts", "k").out.splitlines()
    assert [line.split() for line in (table[0], *table[2:])] == [
        ["queue", "value"],
        ["1", "2"],
        ["0", "1"],
    ]

    store(node, "a-hours", (b'["k",[60.0,119.9]]', b"1"), (b'["k",[120.0,179.9]]', b"5"))
    table = run_here("tables", "get", "hours", "k").out.splitlines()
    assert [line.split() for line in (table[0], *table[2:])] == [
        ["from", "to", "value"],
        f"{as_time(120_000)} {as_time(179_900)} 5".split(),
        f"{as_time(60_000)} {as_time(119_900)} 1".split(),
    ]
    [last, first] = run_here("tables", "get", "hours", "k", "--json").lines()
    assert (last["window"], first["window"]) == ([120.0, 179.9], [60.0, 119.9])
    assert (last["key"], last["value"]) == ("k", 5)
