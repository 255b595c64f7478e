"""An agent whose filter looks like a slip is told so when its app starts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.apps import collecting, running, until
from support.local_node import LocalNode

from rocketray.topology.app.agent_doubts import agent_doubts
from rocketray.topology.app.app import App

SILENT = """
import asyncio, sys
from pathlib import Path
import rocketray as rr
from support.local_node import LocalNode
from rocketray.topology.app import app as module

node = LocalNode(Path(sys.argv[1]))
app = rr.App("shop", connection=node)

@app.agent(app.topic("T", queues=1), tags="pay|ship")
async def pays(stream):
    async for _ in stream:
        pass

async def run():
    await app.start()
    await asyncio.sleep(0.2)
    module.logger.warning("a line of a module with services")
    await app.stop()

asyncio.run(run())
node.close()
"""


@pytest.fixture
def topic(node: LocalNode) -> str:
    node.create_topic("T", 1)
    with node.producer() as producer:
        producer.send("T", b"x", tags="pay", properties={"amount": "120"})
    return "T"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tags": "pay|ship"}, "pay || ship"),
        ({"sql": "amont > 100"}, "amont is in none of the last 1 messages; did you mean amount?"),
    ],
)
def test_a_filter_that_looks_like_a_slip_is_told_once_an_agent(
    node: LocalNode, topic: str, options: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app = App("shop", connection=node)
        app.agent(app.topic(topic), name="doubted", **options)(collecting([]))
        app.agent(app.topic(topic), name="sound", sql="amount > 100")(collecting([]))
        app.agent(app.channel(), name="no_group")(collecting([]))
        async with running(app):
            await until(lambda: "doubted: topic" in caplog.text)

    asyncio.run(scenario())
    told = [record for record in caplog.records if record.name.endswith("agent_doubts")]
    (line,) = [record.getMessage() for record in told]
    assert line.startswith("agent doubted: topic T, ")
    assert says in line
    assert told[0].levelname == "WARNING"


def test_the_topics_of_a_pattern_are_looked_at(node: LocalNode, topic: str) -> None:
    app = App("shop", connection=node)
    app.agent(app.topic(pattern="[TU]"), sql="amont > 1", name="a")(collecting([]))
    (line,) = agent_doubts(node, app.agents.values())
    assert "topic T, " in line


def test_a_program_without_logging_set_up_shows_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert "agent pays: topic T, tags 'pay|ship'" in done.stderr
    assert "a line of a module with services" in done.stderr
