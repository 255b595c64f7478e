"""Faust's command line, on an app of ours and on a stock one; each worker in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.faust_commands import run_faust
from support.harness.patience import patience, wait_until

from rocketray.actors.cluster.node import Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FAUST = str(Path(sys.executable).with_name("faust"))
TESTS = Path(__file__).parent.parent

COMMON = """
import pathlib
import faust

class Order(faust.Record, serializer="json"):
    number: int

orders = app.topic(f"{app.conf.id}-orders", value_type=Order, partitions=1)
counts = app.Table("counts", default=int, partitions=1)

@app.agent(orders)
async def note(stream):
    with pathlib.Path(f"{app.conf.id}.seen").open("a", buffering=1) as seen:
        async for order in stream:
            counts["all"] += 1
            seen.write(f"{order.number} {counts['all']}\\n")
"""
MODULES = {
    "shop": "import rocketray as rr\napp = rr.App('shop')\n",
    "stock": (
        "import faust\nimport support.nodes.stock_apps\n"
        "app = faust.App('stock', broker='rocketray://', topic_disable_leader=True)\n"
    ),
}


@pytest.fixture
def directory(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with both modules, and with the running node where apps look for one."""
    directory = tmp_path_factory.getbasetemp() / "faust"
    if not directory.exists():
        directory.mkdir()
        for name, head in MODULES.items():
            (directory / f"{name}.py").write_text(head + COMMON)
        (directory / "rocketray-data").symlink_to(node.data)
    return directory


@pytest.fixture
def sent(directory: Path) -> dict[str, tuple[int, str]]:
    """What ``faust send`` ended with and printed, once for each module."""
    kept = directory / "sent.json"
    if not kept.exists():
        commands = [("-A", module, "send", "@note", '{"number": 1}') for module in MODULES]
        done = run_faust(directory, commands, environ())
        kept.write_text(json.dumps(dict(zip(MODULES, done, strict=True))))
    found: dict[str, tuple[int, str]] = json.loads(kept.read_text())
    return found


def environ() -> dict[str, str]:
    found = {name: text for name, text in os.environ.items() if name != "ROCKETRAY_DATA"}
    return {**found, "PYTHONPATH": os.pathsep.join([str(TESTS), found.get("PYTHONPATH", "")])}


def worker_of(directory: Path, module: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [FAUST, "-A", module, "worker", "-l", "info", "--without-web"],
        cwd=directory,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_lines(path: Path, count: int) -> list[str]:
    wait_until(
        lambda: path.exists() and len(path.read_text().split("\n")) > count,
        f"{path} has too few lines",
    )
    return path.read_text().splitlines()


@pytest.mark.proves("stock-faust", "`faust worker` and `send`; a signal stops a worker in order")
@pytest.mark.parametrize(
    ("module", "number"),
    [("shop", signal.SIGTERM), ("stock", signal.SIGINT)],
    ids=["ours", "stock"],
)
def test_a_worker_handles_what_is_sent_and_ends_on_a_signal(
    directory: Path, sent: dict[str, tuple[int, str]], module: str, number: signal.Signals
) -> None:
    code, printed = sent[module]
    assert code == 0, printed
    assert json.loads(printed)["offset"] == 0
    worker = worker_of(directory, module)
    try:
        assert wait_for_lines(directory / f"{module}.seen", 1) == ["1 1"]
        worker.send_signal(number)
        said = worker.communicate(timeout=patience(60))[0]
    finally:
        worker.kill()
        worker.communicate()
    assert worker.returncode == 0, said
    assert "Worker ready" in said
    assert "Traceback" not in said


@pytest.mark.proves("stock-faust", "`faust agents`, `tables`, `models`, `reset`")
def test_agents_tables_and_models_are_listed_and_state_is_reset(directory: Path) -> None:
    commands = (
        ("-A", "shop", "--json", "agents"),
        ("-A", "stock", "--json", "tables"),
        ("-A", "shop", "--json", "models"),
        ("-A", "stock", "reset"),
    )
    done = run_faust(directory, commands, environ())
    assert [code for code, _ in done] == [0] * len(commands), done
    agents, tables, models, reset = (said for _, said in done)
    [agent] = json.loads(agents)
    assert (agent["name"], agent["topic"]) == ("@note", "shop-orders")
    [table] = json.loads(tables)
    assert table["name"] == "counts"
    assert "Order" in [model["name"] for model in json.loads(models)]
    assert "counts" in reset
