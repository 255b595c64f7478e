"""An app stops, whatever features it has, and has after the next start what was set before it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.patience import patience
from support.programs.stopping_apps import PROGRAMS, Program

from rocketray.testing import Broker

REFERENCE = Path(__file__).parents[3] / "docs/reference/faust.md"
WITHOUT_A_RUN = (
    "agent.test_context()",
    "changes outside of a handler",
    "app.discover()",
    "JSON",
    "on_worker_init",
    "faust -A app",
    "statsd",
)
"""Rows of features that a running app does not have, or that need another package."""


async def life(program: Program) -> object:
    """What a program keeps at its end."""
    await program.app.start()
    program.broker._apps.append(program.app)
    await program.use()
    kept = program.kept()
    program.broker._apps.remove(program.app)
    await asyncio.wait_for(program.app.stop(), patience(30))
    return kept


async def nothing() -> None:
    """Send nothing: what was kept is read before the first message."""


@pytest.mark.proves("faust", "An app stops, whatever features it has")
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_app_stops_and_keeps_what_was_set(broker: Broker, tmp_path: Path, name: str) -> None:
    if name == "rocksdb" and importlib.util.find_spec("rocksdict") is None:
        pytest.skip("rocksdict is not installed")
    declare, _ = PROGRAMS[name]

    def program() -> Program:
        one = Program(broker, tmp_path / "app")
        declare(one)
        return one

    kept = asyncio.run(life(program()))
    again = program()
    again.use = nothing
    assert asyncio.run(life(again)) == kept


def test_each_feature_of_the_reference_is_in_an_app_that_stops() -> None:
    rows = re.findall(r"^\| (.+?) \| (?:works|differs) \|", REFERENCE.read_text(), re.MULTILINE)
    begins = [begin for _, rows in PROGRAMS.values() for begin in rows.split("|") if begin]
    plain = [row.replace("`", "") for row in rows]
    missing = [row for row in plain if not row.startswith((*begins, *WITHOUT_A_RUN))]
    assert not missing
    assert [begin for begin in begins if not any(row.startswith(begin) for row in plain)] == []


PROGRAM = """
from pathlib import Path

import rocketray as rr
from rocketray.testing import Broker

broker = Broker(Path({data!r}))
app = rr.App("setapp", connection=broker)
topic = app.topic("SetIn", value_type=str, queues=1)
sets = app.{kind}("sets")

@app.agent(topic)
async def add(stream):
    async for value in stream:
        sets["s"].add(value)
        print("added", sorted(sets["s"]), flush=True)

@app.task
async def send():
    if sets.data.data.get("s"):
        print("found", sorted(sets["s"]), flush=True)
    await topic.send(value={value!r})

app.main()
"""


@pytest.mark.proves("faust", "An app stops, whatever features it has")
@pytest.mark.parametrize("kind", ["SetTable", "SetGlobalTable"])
def test_a_program_with_a_table_of_sets_ends_at_a_signal(tmp_path: Path, kind: str) -> None:
    data = str(tmp_path / "node")

    def run(value: str) -> list[str]:
        program = PROGRAM.format(data=data, kind=kind, value=value)
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or not lines[-1].startswith("added"):
                line = process.stdout.readline()
                assert line, process.communicate()[1]
                lines.append(line.strip())
            os.kill(process.pid, signal.SIGINT)
            try:
                process.communicate(timeout=patience(60))
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0
        return lines

    assert run("x") == ["added ['x']"]
    assert run("y")[-1] == "added ['x', 'y']"
