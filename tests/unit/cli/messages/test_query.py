from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from support.command_server import run_here
from support.local_node import LocalNode
from support.transactions import begin

from rocketray.actors.producers.producer import NodeProducer
from rocketray.cli.arguments.lookup_options import parse_time_ms
from rocketray.cli.messages import query


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("9" * 40, 2**63 - 1),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
    ],
)
def test_milliseconds_and_iso_8601(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


@pytest.mark.parametrize("text", ["", "-5", "yesterday", "2023-13-01", "٣"])
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_time_ms(text)


@pytest.mark.parametrize(
    "command", [("query", "T"), ("filter", "preview", "T"), ("store", "query", ".")]
)
def test_times_between_which_nothing_can_lie_are_wrong_usage(command: tuple[str, ...]) -> None:
    done = run_here(*command, "--from", "5", "--to", "1")
    assert (done.code, "--from is later than --to" in done.err) == (2, True)


def test_what_nobody_has_decided_is_shown_until_somebody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalNode(tmp_path) as node:
        monkeypatch.setattr(query, "connect", lambda _data: nullcontext(node))
        empty = run_here("transactions")
        assert (empty.code, "undecided: 0" in empty.out) == (0, True)
        node.topics.ensure("T", 1)
        with NodeProducer(node, group="orders", check=lambda _: "unknown") as producer:
            first, second = (begin(producer, "T", body) for body in (b"a", b"b"))
            found = wait_for(2)
            assert [(each["group"], each["halfOffset"], each["checks"]) for each in found] == [
                ("orders", 0, 0),
                ("orders", 1, 0),
            ]
            assert len(run_here("transactions", "--max", "1", "--json").lines()) == 1
            shown = run_here("transactions", "--max", "1").out
            assert found[0]["msgId"] in shown
            assert found[1]["msgId"] not in shown
            assert "undecided: 2, committed: 0" in shown
            first.commit()
            second.rollback()
            wait_for(0)


def wait_for(count: int) -> list[dict[str, Any]]:
    end = time.monotonic() + 30
    while len(found := run_here("transactions", "--json").lines()) != count:
        assert time.monotonic() < end
        time.sleep(0.02)
    return found
