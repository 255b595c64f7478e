"""Look-ups of one message on a node: what they print, and the code with which they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.command_server import run_here
from support.local_node import LocalNode

from rocketray.cli.filters import explain
from rocketray.cli.messages import query
from rocketray.filters.subscription import Subscription


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        for module in (explain, query):
            monkeypatch.setattr(module, "ask", lambda _data: nullcontext(local))
        local.topics.ensure("T", 1)
        with local.producer() as producer:
            producer.send("T", b"one", keys="k")
        local.consumer("g", "T", Subscription.tags("none")).close()
        yield local


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_look_up_that_finds_nothing_ends_with_1(options: tuple[str, ...]) -> None:
    assert run_here("query", "T", "--key", "k", *options).code == 0
    for wanted in (("--key", "x"), ("--unique-key", "x"), ("--to", "1")):
        done = run_here("query", "T", *wanted, *options)
        assert (done.code, done.out, done.err) == (1, "", "no such message\n")


@pytest.mark.usefixtures("node")
def test_an_explanation_ends_with_1_where_there_is_no_such_message() -> None:
    told = run_here("explain", "k", "--group", "g")
    assert (told.code, told.out.split()[0]) == (0, "tag_mismatch")
    unknown = run_here("explain", "x", "--group", "g")
    assert (unknown.code, unknown.out.split()[0]) == (1, "not_found")
    as_json = run_here("explain", "x", "--group", "g", "--json")
    assert (as_json.code, json.loads(as_json.out)["cause"]) == (1, "not_found")
