"""The log of an app: the message in hand in each line, and printed lines in its file."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import put, running
from support.nodes.local_node import LocalNode

from rocketray.runtime.process_logs.log_line import MessagePlace, parse_lines
from rocketray.topology.app.app import App
from rocketray.topology.app.app_log import _EARLY_LINES, AppLog, place_in_hand


def test_a_handler_knows_the_place_of_what_it_has(node: LocalNode) -> None:
    app = App("shop", connection=node)
    topic = app.topic("T", queues=1)
    single: list[MessagePlace | None] = []
    listed: list[tuple[int, MessagePlace | None]] = []

    @app.agent(topic)
    async def one(stream: Any) -> None:
        async for _ in stream:
            single.append(place_in_hand())  # noqa: PERF401  # one by one

    @app.agent(topic)
    async def many(stream: Any) -> None:
        async for values in stream.take(3, within=0.05):
            listed.append((len(values), place_in_hand()))  # noqa: PERF401  # the same

    async def scenario() -> None:
        async with running(app):
            put(node, "T", [b'"a"', b'"b"', b'"c"'])
            await until(lambda: len(single) == 3 and sum(count for count, _ in listed) == 3)

    asyncio.run(scenario())
    assert place_in_hand() is None
    assert [place and (place.topic, place.queue_id, place.queue_offset) for place in single] == [
        *(("T", 0, number) for number in range(3))
    ]
    assert all(place is not None and place.message_id for place in single)
    begin = 0
    for count, place in listed:
        last = begin + count - 1 if count > 1 else None
        assert place is not None
        assert (place.queue_offset, place.last_queue_offset) == (begin, last)
        begin += count


def test_lines_of_an_app_whose_file_never_comes_do_not_pile_up() -> None:
    log = AppLog()
    with log.following():
        for number in range(3 * _EARLY_LINES):
            logging.getLogger("shop").error("%d", number)
            assert len(log._memory.buffer) <= _EARLY_LINES


def test_the_file_has_what_came_before_it_prints_and_errors(
    node: LocalNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop", connection=node)

    @app.agent(app.topic("T", queues=1))
    async def charge(stream: Any) -> None:
        async for value in stream:
            print("charge", value)  # noqa: T201  # what is tested
            raise ValueError(value)

    async def scenario() -> None:
        async with running(app):
            put(node, "T", [b'"a"'])
            await until(lambda: app.agents[charge.name].statistics().sent_back == 1)

    log = AppLog()
    with log.following():
        logging.getLogger("rocketray.early").warning("before the node was ready")
        print("plain")  # noqa: T201  # the same
        file = log.begin(tmp_path, "shop")
        asyncio.run(scenario())
    assert sys.stdout.__class__.__name__ != "PrintedLines"
    assert capsys.readouterr().out == "plain\ncharge a\n", "in the terminal it is as it was"
    assert file is not None
    lines = list(parse_lines(file.read_text().splitlines()))
    assert lines[0].text == "before the node was ready"
    assert (lines[1].level, lines[1].logger, lines[1].text) == ("PRINT", "stdout", "plain")
    [printed] = [line for line in lines if line.level == "PRINT" and line.place]
    [failed] = [line for line in lines if line.level == "ERROR" and line.place]
    assert printed.text == "charge a"
    assert printed.place == failed.place
    assert "Traceback" in failed.text
