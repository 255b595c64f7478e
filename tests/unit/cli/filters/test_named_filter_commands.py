"""Named filters by commands, on a node in this process that answers on its socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.harness.command_server import run_here
from support.nodes.apps import put
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray.cli.arguments.completions import complete_filters
from rocketray.filters.filter_name import FilterName

SAVE = ("filter", "save", "Trade", "large")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path))
    with LocalNode(tmp_path) as local, serving(local):
        local.topics.create("Trade", 1)
        for amount in (5, 15, 25):
            put(local, "Trade", [b"m%d" % amount], properties={"amount": str(amount)})
        yield local


def test_a_filter_has_versions(node: LocalNode) -> None:
    done = run_here(*SAVE, "--sql", "amount > 10", "--note", "for the audit")
    assert (done.code, done.out) == (0, "large@1 of topic Trade is saved: sql 'amount > 10'\n")
    assert "nothing was saved" in run_here(*SAVE, "--sql", "amount > 10").out
    [record] = run_here(*SAVE, "--sql", "amont > 20", "--json").lines()
    assert (record["version"], record["isNew"]) == (2, True)
    assert [each["subject"] for each in record["warnings"]] == ["amont"]
    warned = run_here(*SAVE, "--sql", "amont > 20").err
    assert "warning: never-seen: amont is in none of 3 recent messages" in warned
    [latest] = run_here("filter", "list", "Trade", "--json").lines()
    assert (latest["version"], latest["filter"]["namedFilter"]) == (2, "large@2")
    versions = run_here("filter", "show", "Trade", "large", "--json").lines()
    assert [each["note"] for each in versions] == ["for the audit", ""]
    assert "sql 'amount > 10'" in run_here("filter", "show", "Trade", "large@1").out
    assert node.named_filters.get("Trade", FilterName("large", 1)).created_by.split()[1] == "on"


def test_groups_that_use_a_filter_are_named(node: LocalNode) -> None:
    run_here(*SAVE, "--sql", "amount > 10")
    subscription = node.named_filters.get("Trade", FilterName("large")).subscription
    with node.consumer("Shop", "Trade", subscription):
        saved = run_here(*SAVE, "--sql", "amount > 20").out
        assert (
            "group Shop reads with large@1 (1 member); to switch it: rocketray groups migrate"
            in (saved)
        )
        assert "Shop (@1)" in run_here("filter", "list", "Trade").out
        refused = run_here("filter", "remove", "Trade", "large")
        assert (refused.code, "used by groups Shop (large@1)" in refused.err) == (1, True)
    removed = run_here("filter", "remove", "Trade", "large", "--force").out
    assert removed == (
        "filter large of topic Trade is removed, with 2 versions; groups Shop keep what they have\n"
    )
    assert "has no named filter" in run_here("filter", "list", "Trade").out


def test_commands_that_filter_take_the_name(node: LocalNode) -> None:
    run_here(*SAVE, "--sql", "amount > 10")
    run_here(*SAVE, "--sql", "amount > 20")
    tail = ("tail", "Trade", "--from", "earliest", "--timeout", "0")
    assert run_here(*tail, "--filter", "large@1").out.count("\n") == 2
    assert "m25" in (latest := run_here(*tail, "--filter", "large").out)
    assert "m15" not in latest
    preview = run_here("filter", "preview", "Trade", "--filter", "large@1", "--json").lines()
    assert preview[0]["matched"] == 2
    diff = run_here("filter", "diff", "Trade", "filter:large@1", "filter:large", "--json").lines()
    assert (diff[0]["both"], diff[0]["onlyOld"], diff[0]["onlyNew"]) == (1, 1, 0)
    checked = run_here("filter", "check", "--filter", "large@1", "--topic", "Trade")
    assert checked.out.startswith("amount > 10\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((*SAVE, "--sql", "amount >"), 2, "  amount >\n          ^"),
        (SAVE, 2, "give the filter with --tags, --sql or --where"),
        (("filter", "save", "Trade", "a b", "--tags", "x"), 2, "characters that are not allowed"),
        (("filter", "save", "Trade", "a@1", "--tags", "x"), 2, "numbered by the node"),
        (("filter", "save", "Nope", "a", "--tags", "x"), 1, "topic 'Nope' does not exist"),
        (
            ("filter", "save", "Trade", "a", "--where", "os:system"),
            1,
            "is not allowed on this node",
        ),
        (("filter", "show", "Trade", "lagre"), 1, "topic 'Trade' has no filter 'lagre'"),
        (("filter", "remove", "Trade", "a@1"), 2, "single versions stay"),
        (("tail", "Trade", "--filter", "nope"), 1, "topic 'Trade' has no filter 'nope'"),
        (("tail", "Trade", "--filter", "a", "--sql", "b = 1"), 2, "leave out --sql"),
        (("filter", "preview", "Trade", "--filter", "nope"), 1, "has no filter 'nope'"),
        (("filter", "check", "--filter", "a"), 2, "add --topic"),
        (("filter", "diff", "Trade", "filter:a@0", "b = 1"), 2, "is not a version of filter 'a'"),
        (("groups", "migrate", "Shop", "Trade", "--filter", "nope"), 1, "has no filter 'nope'"),
    ],
)
def test_what_cannot_be_done_is_said(
    node: LocalNode, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run_here(*arguments)
    assert done.code == code, node.data
    assert said in done.err


def test_names_are_completed(node: LocalNode) -> None:

    run_here(*SAVE, "--tags", "a")
    run_here("filter", "save", "Trade", "gone", "--tags", "a")
    run_here("filter", "remove", "Trade", "gone")
    context = SimpleNamespace(params={"topic": "Trade", "data": node.data})
    assert complete_filters(context, "") == ["large"]  # type: ignore[arg-type]
    assert complete_filters(context, "x") == []  # type: ignore[arg-type]
