"""A node that is killed and started again under an open page of the console, in a real browser."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from support.harness.commands import ONE_PROCESS, rocketray, start_node, stop_node
from support.harness.machine import needs
from support.harness.patience import patience
from support.nodes.chromium import Chromium
from support.nodes.console_client import ConsoleClient

from rocketray.actors.client.node_connections import open_node

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs("browser"),
]
NOTICE = "document.getElementById('notice').textContent"
TOTAL = "document.querySelector('[data-stage=scanned] .total').textContent"
_RESTART_S = 120.0


def test_a_tail_goes_through_the_death_of_its_node(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def send(text: str) -> None:
        done = rocketray("send", "Trade", text, "--data", data)
        assert done.returncode == 0, done.stderr

    async def look() -> None:
        async with Chromium(tmp_path / "profile") as browser:
            await browser.open(console.link)
            await browser.open(f"{console.address}/?topic=Trade&from=earliest")
            await browser.wait(f"{TOTAL} === '1'")
            nodes[0].send_signal(signal.SIGKILL)
            nodes[0].wait(patience(30))
            await browser.wait(f"{NOTICE}.includes('does not answer')")
            log = tmp_path / "second.log"
            nodes.append(await asyncio.to_thread(start_node, data, log, *ONE_PROCESS))
            await browser.wait(f"!{NOTICE}.includes('does not answer')", _RESTART_S)
            await asyncio.to_thread(send, "after")
            await browser.wait(f"{TOTAL} === '2'")
            shown = await browser.run("document.querySelector('#rows tr').textContent")
            assert "after" in shown

    nodes = [start_node(data, tmp_path / "first.log", *ONE_PROCESS)]
    try:
        done = rocketray("topics", "create", "Trade", "--queues", "2", "--data", data)
        assert done.returncode == 0, done.stderr
        send("before")
        with ConsoleClient(data, lambda: open_node(data)) as console:
            asyncio.run(look())
    finally:
        stop_node(nodes[-1])
