"""Apps that are brought up, scaled and taken down by commands, on a node that runs beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_server import CommandServer
from support.commands import COMMAND

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

# Each handled number is a line in a file of its process: what comes twice is there twice.
APP = """
import os
import pathlib
import rocketray as rr

app = rr.App("shop")
orders = app.topic("Orders", value_type=bytes, queues=2)

@app.agent(orders, max_attempts=0)
async def note(stream):
    crashed = pathlib.Path(__file__).with_name("crashed")
    with pathlib.Path(__file__).with_name(f"seen-{os.getpid()}").open("ab", buffering=0) as seen:
        async for number in stream:
            if number == b"crash":
                if not crashed.exists():  # the message may come again
                    crashed.touch()
                    await app.crash(RuntimeError("asked to"))
                continue
            if number == b"bad":
                raise ValueError("asked to")
            seen.write(number + b"\\n")
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("apps")
    (directory / "shop.py").write_text(APP)
    return directory


@pytest.fixture(scope="module")
def environ(directory: Path) -> dict[str, str]:
    return dict(os.environ) | {"ROCKETRAY_DATA": str(directory / "data")}


@pytest.fixture(scope="module")
def run(environ: dict[str, str], directory: Path) -> Iterator[CommandServer]:
    """Commands for a node that ends with the module; what is up then is taken down by it."""
    process = subprocess.Popen(
        [COMMAND, "start", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    )
    assert process.stdout
    assert process.stdout.readline()
    try:
        with CommandServer(environ, directory) as server:
            yield server
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said.decode()
    assert b"taking 1 hosts of apps down" in said


def hosts(run: CommandServer) -> list[dict[str, Any]]:
    return run("status", "--json").lines()


def wait_for(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def seen(directory: Path) -> list[int]:
    return sorted(
        int(line) for file in directory.glob("seen-*") for line in file.read_text().split()
    )


def send(run: CommandServer, numbers: range) -> None:
    """Send to each queue in turn."""
    for number in numbers:
        done = run("send", "Orders", str(number), "--queue", str(number % 2))
        assert done.code == 0, done.err


def queues(found: list[dict[str, Any]]) -> list[list[int]]:
    return [[queue["queueId"] for queue in host["queues"]] for host in found]


def counts(found: list[dict[str, Any]], name: str) -> list[int]:
    return [agent[name] for host in found for agent in host["agents"]]


def test_the_life_of_an_app(run: CommandServer, directory: Path) -> None:
    up = run("up", "shop:app", "--consumers", "2", "--detach", "--json").lines()
    assert [(host["app"], host["host"]) for host in up] == [("shop", 0), ("shop", 1)]
    wait_for(lambda: sorted(map(len, queues(hosts(run)))) == [1, 1], "the queues are not shared")
    send(run, range(24))
    wait_for(lambda: len(seen(directory)) >= 24, "not all messages were handled")
    found = hosts(run)
    assert [host["state"] for host in found] == ["running", "running"]
    assert sum(counts(found, "finished")) == 24
    assert sorted(queue for each in queues(found) for queue in each) == [0, 1]

    run("send", "Orders", "bad")
    wait_for(lambda: sum(counts(hosts(run), "deadLettered")) == 1, "it is no dead letter")
    assert sum(counts(hosts(run), "failures")) == 1
    assert "dead letters" in run("status", "shop").out

    run("scale", "shop", "1")
    wait_for(lambda: queues(hosts(run)) == [[0, 1]], "the other host took nothing over")
    send(run, range(24, 36))
    wait_for(lambda: len(seen(directory)) >= 36, "not all messages were handled")
    assert run("down", "shop", "--json").lines() == [{"app": "shop", "ended": 1}]
    assert hosts(run) == []


def test_an_app_in_the_foreground_survives_a_crash_and_ends_with_its_command(
    run: CommandServer, directory: Path, environ: dict[str, str]
) -> None:
    command = [COMMAND, "up", "shop:app", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=directory, env=environ)
    assert process.stdout
    before = json.loads(process.stdout.readline())
    send(run, range(36, 48))
    wait_for(lambda: len(seen(directory)) >= 48, "not all messages were handled")
    assert seen(directory) == list(range(48)), "what was finished did not come again"
    run("send", "Orders", "crash")
    wait_for(lambda: hosts(run)[0]["restarts"] > 0, "the actor did not end")
    wait_for(lambda: hosts(run)[0]["state"] == "running", "it did not come back")
    assert hosts(run)[0]["pid"] != before["pid"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert hosts(run) == []


def test_what_cannot_be_done_says_what_to_do(run: CommandServer, tmp_path: Path) -> None:
    assert run("up", "shop:app", "--detach").code == 0
    again = run("up", "shop:app", "--detach")
    assert (again.code, again.out) == (1, "")
    assert "app 'shop' is up with 1 host" in again.err
    assert "rocketray scale shop 1" in again.err
    assert "No module named 'nowhere'" in run("up", "nowhere:app").err
    assert "an app is named as module:app" in run("up", "no-colon").err
    nothing = run("down", "nobody")
    assert (nothing.code, nothing.out) == (1, "")
    assert "app 'nobody' is not up; these are: shop" in nothing.err
    assert run("scale", "nobody", "2").code == 1
    no_node = run("status", "--data", tmp_path / "none")
    assert "rocketray start --data" in no_node.err
