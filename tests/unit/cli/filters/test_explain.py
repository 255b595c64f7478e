"""Look-ups of one message on a node: what they print, and the code with which they end."""

from __future__ import annotations

import json

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.broker.shards.shard_lookups import QUERY_MAX
from rocketray.cli.messages import query
from rocketray.filters.subscription import Subscription


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    node.topics.ensure("T", 1)
    with node.producer() as producer:
        producer.send("T", b"one", keys="k")
    node.consumer("g", "T", Subscription.tags("none")).close()
    return node


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_look_up_that_finds_nothing_ends_with_1(options: tuple[str, ...]) -> None:
    assert run_here("query", "T", "--key", "k", *options).code == 0
    for wanted in (("--key", "x"), ("--unique-key", "x"), ("--to", "1")):
        done = run_here("query", "T", *wanted, *options)
        assert (done.code, done.out, done.err) == (1, "", "no such message\n")


def test_a_look_up_that_may_have_left_messages_out_says_so(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.producer() as producer:
        for _ in range(2):
            producer.send("T", b"", keys="k")
    for wanted, which in ((("--key", "k"), "newest"), (("--from", "0"), "oldest")):
        assert run_here("query", "T", *wanted).err == ""
        some = run_here("query", "T", *wanted, "--max", "2")
        assert some.out.count("\n") == 2
        assert some.err.startswith(f"shown: the {which} 2 messages; there may be more, see --max")
    monkeypatch.setattr(query, "_QUEUE_MAX", 3)
    assert (
        "a queue returns its 3 newest messages at most" in run_here("query", "T", "--key", "k").err
    )


def test_a_queue_returns_as_many_messages_as_the_command_says() -> None:
    assert query._QUEUE_MAX == QUERY_MAX


@pytest.mark.usefixtures("node")
def test_an_explanation_ends_with_1_where_there_is_no_such_message() -> None:
    told = run_here("explain", "k", "--group", "g")
    assert (told.code, told.out.split()[0]) == (0, "tag_mismatch")
    unknown = run_here("explain", "x", "--group", "g")
    assert (unknown.code, unknown.out.split()[0]) == (1, "not_found")
    as_json = run_here("explain", "x", "--group", "g", "--json")
    assert (as_json.code, json.loads(as_json.out)["cause"]) == (1, "not_found")


@pytest.mark.usefixtures("node")
def test_a_range_is_a_table_of_causes() -> None:
    told = run_here("explain", "--group", "g", "--topic", "T")
    assert told.code == 0
    assert told.out.splitlines()[2].split()[:2] == ["tag_mismatch", "1"]
    as_json = run_here("explain", "--group", "G", "--topic", "T", "--to", "1", "--json")
    found = json.loads(as_json.out)
    assert (found["held"], found["explained"], found["causes"][0]["cause"]) == (1, 1, "no_group")
    assert "did you mean 'g'?" in found["notes"][0]
    assert found["causes"][0]["example"]["queueOffset"] == 0
    nothing = run_here("explain", "--group", "g", "--topic", "T", "--from", "1")
    assert (nothing.code, nothing.out) == (1, "no message is in this range\n")
    since = run_here("explain", "--group", "g", "--topic", "T", "--from", "2020-01-01T00:00Z")
    assert since.out == told.out


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "give the ID or KEY of a message; or --topic"),
        (("k", "--from", "1"), "leave ID or KEY out"),
        (("--topic", "T", "--from", "2", "--to", "1"), "--from is later than --to"),
        (("--topic", "T", "--from", "today"), "'today' is not an offset or a time"),
    ],
)
def test_what_is_asked_of_a_range_is_checked(options: tuple[str, ...], error: str) -> None:
    done = run_here("explain", "--group", "g", *options)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
