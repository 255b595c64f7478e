"""The app and the program that the README shows are run as they stand there, on a node for tests."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from support.harness.source_tree import ROOT

import rocketray as rr
from rocketray.testing import Broker

APP, PROGRAM = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


class Reached:
    """The broker, as a program that makes a producer or a client of its own has it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __enter__(self) -> Broker:
        return self._broker

    def __exit__(self, *_: object) -> None:
        """It goes on."""


def started(broker: Broker) -> dict[str, Any]:
    """The names of README's app, on *broker*."""
    connected = APP.replace('rr.App("trade")', 'rr.App("trade", connection=broker)')
    assert connected != APP
    names: dict[str, Any] = {"broker": broker, "__name__": "trade"}
    exec(compile(connected, "README.md", "exec"), names)
    return names


def test_the_agents_get_what_the_program_sends_and_it_finds_it_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rr, "Producer", broker.producer, raising=False)
    monkeypatch.setattr(rr, "Client", lambda: Reached(broker), raising=False)
    names = started(broker)

    async def scenario() -> None:
        async with broker.running(names["app"]):
            exec(compile(PROGRAM, "README.md", "exec"), {})
            await broker.settle()

    asyncio.run(scenario())
    lines = set(capsys.readouterr().out.splitlines())
    assert {"order-17 pay", "1"} < lines, "each agent has it: as an order, and in a batch of one"
    assert ['"amount": 120' in line for line in lines].count(True) == 1  # what was looked up
    assert broker.topics.all().keys() == {"Trade"}, "nothing was sent back"


def test_a_filter_of_whole_numbers_takes_the_fields_of_its_records(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """``amount: float`` is the text 120.0 beside the log, and BETWEEN 100 AND 500 compares it."""
    names = started(broker)
    amounts = {"below": 99.0, "whole": 120.0, "between": 130.5, "int": 400, "above": 500.01}

    async def scenario() -> None:
        async with broker.running(names["app"]):
            for name, amount in amounts.items():
                order = names["Order"](order_id=name, kind="pay", region="eu", amount=amount)
                await names["trade"].send(value=order)
            await broker.settle()

    asyncio.run(scenario())
    lines = capsys.readouterr().out.splitlines()
    assert {f"{name} pay" for name in amounts} < set(lines), "tags let all of them through"
    assert sum(int(line) for line in lines if line.isdigit()) == 3  # whole, between, int
    [filtered] = [each for each in broker.groups.all() if each.group == "trade-large_payments"]
    assert filtered.counters.evaluation_errors == 0
