"""The README, the tutorial, the how-to pages with commands, and the examples do what they show.

All of them are run on one node, each in a directory of its own. Blocks of the language ``console``
are compared with what they print; the commands of ``sh`` blocks succeed. ``make test`` runs the
README, the first page, the ``sh`` blocks and the first example; ``make docs`` and ``make test-slow`` run all.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from deltalake import DeltaTable
from support.harness.command_server import CommandServer
from support.harness.commands import ONE_PROCESS, start_node, stop_node
from support.harness.forked import ForkedProgram
from support.harness.page_runner import PageRunner, Terminal, blocks_of, shown_as
from support.harness.patience import patience
from support.harness.source_tree import ROOT
from support.nodes.stores import GOLDEN_STORE
from support.spark.one_spark import one_spark

from rocketray.queries.spark.file_sink_log import committed_files

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1200),
]

DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
DELTA = "lake/flights_delta"
HERE = socket.gethostname()
TUTORIAL = sorted(path for path in DOCS.glob("tutorial/*.md") if path.name != "index.md")
HOW_TO = [
    path
    for path in sorted(DOCS.glob("how-to/*.md"))
    if any(block.language == "console" for block in blocks_of(path))
]
README, COMMANDS = ROOT / "README.md", DOCS / "how-to/commands.md"
SHELL_PAGES = [
    path
    for path in dict.fromkeys((COMMANDS, README, *sorted(DOCS.rglob("*.md"))))
    if any(block.language == "sh" for block in blocks_of(path))
]
QUICK = ("README", "first-app")
"""The pages that ``make test`` runs."""
NOT_RUN = {
    "python3 -m venv": "what follows cannot be installed there",
    ". .venv/bin/activate": "the commands are those under test",
    "pip install": "it downloads packages",
    "make": "test_docs.py knows the verbs",
    "rocketray start": "the node of all pages runs",
    "rocketray up": "the first page of the tutorial runs it",
    "rocketray doctor": "its exit code is about the machine",
    "rocketray demo": "test_demo.py runs it",
    "rocketray store import": "the page about it runs it",
    "rocketray metrics --host": "it needs an address of its own, and runs until it is stopped",
}
"""Commands of ``sh`` blocks that are not run, by their first words, and the reason."""
LETTERS = "%DLQ%billing"
BEFORE = {
    "retries": (
        f"topics create {LETTERS} --queues 1",
        f"send {LETTERS} invoice --property 'FAILURE_REASON=ValueError: no address'",
    ),
    "groups": (
        "topics create Prices --queues 1",
        *["send Trade payment --tags pay --queue 2"] * 12,
    ),
}
"""What a page's commands find on the node, beside the topic, message and group of the page of commands."""
RUN_TESTS = "import sys, pytest\nsys.path[0] = ''\nsys.exit(pytest.main(sys.argv[1:]))\n"
EXAMPLE_ID = "0A0A0A0A00002A9F00000000000000D4"


@dataclass(frozen=True)
class Node:
    """The node of all pages: its environment, what it printed when it started, and commands on it."""

    environ: dict[str, str]
    log: str
    commands: CommandServer


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The node; it ends cleanly."""
    directory = tmp_path_factory.mktemp("docs")
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = dict(os.environ) | {
        "ROCKETRAY_DATA": str(directory / "data"),
        "PATH": scripts,
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "120",
    }
    log = directory / "node.log"
    process = start_node(directory / "data", log, *ONE_PROCESS, environ=environ)
    with CommandServer(environ) as commands:
        yield Node(environ, log.read_text(), commands)
    stop_node(process)


@dataclass(frozen=True)
class OneSpark:
    """Where the programs that use Spark run, and their environment."""

    directory: Path
    environ: dict[str, str]


@pytest.fixture(scope="module")
def spark(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneSpark]:
    directory = tmp_path_factory.mktemp("spark")
    with one_spark(directory, node.environ) as environ:
        yield OneSpark(directory, environ)


@pytest.mark.proves(
    "documentation",
    "The README, each page of the tutorial, and each how-to page with a console print what they "
    "show",
)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[] if page.stem in QUICK else pytest.mark.slow)
        for page in (README, *TUTORIAL, *HOW_TO)
    ],
)
def test_a_page_does_what_it_shows(
    page: Path, node: Node, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory, environ = tmp_path, node.environ
    if "spark_session(" in page.read_text():
        spark: OneSpark = request.getfixturevalue("spark")
        directory, environ = spark.directory, spark.environ
    shutil.copytree(GOLDEN_STORE, directory / "store")  # a broker's, for the page that reads one
    with PageRunner(directory, environ, node.log, node.commands) as runner:
        runner.run(page)


def shell_lines(page: Path) -> Iterator[str]:
    """Each command of the page's ``sh`` blocks, on one line and without its comment."""
    for block in blocks_of(page):
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                yield shlex.join(shlex.split(line, comments=True))


@pytest.mark.proves("documentation", "The commands of shell blocks succeed, on every page")
def test_the_commands_of_shell_blocks_succeed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "rocketray-data").symlink_to(node.environ["ROCKETRAY_DATA"])
    skipped: set[str] = set()
    rocketray = partial(node.commands, directory=tmp_path)

    def run(words: list[str], page: Path) -> None:
        done = rocketray(*words)
        assert done.code == 0, f"{page}: rocketray {shlex.join(words)}\n{done.out}{done.err}"

    def offset_id(key: str) -> str:
        [found] = rocketray("query", "Trade", "--key", key, "--json").lines()
        return str(found["offsetMsgId"])

    rocketray("topics", "delete", "Trade", "--yes")  # an example's
    for page in SHELL_PAGES:
        for command in BEFORE.get(page.stem, ()):
            run(shlex.split(command), page)
        for line in shell_lines(page):
            reasons = {start for start in NOT_RUN if line.startswith(start)}
            skipped |= reasons
            if reasons:
                continue
            command, *words = shlex.split(line.replace("GROUP", "billing"))
            assert command == "rocketray", f"{page}: {line}"
            if EXAMPLE_ID in words:
                words[words.index(EXAMPLE_ID)] = offset_id("order-18")
            if words[0] == "consume":
                words += ["--timeout", "1"]
            run(words, page)
    assert skipped == NOT_RUN.keys()


@pytest.mark.proves("documentation", "No block of the tutorial is left out")
def test_every_block_of_the_tutorial_is_run() -> None:
    assert len(TUTORIAL) == 5
    for page in TUTORIAL:
        for block in blocks_of(page):
            assert block.language == "console" or Path(block.title).suffix, f"{page}: {block.text}"


@pytest.mark.proves("documentation", "The examples print what their agents get")
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "trade",
            [
                "logistics     order-17: on its way",
                "payment       order-17: 120",
                "success rate  1 of 2 orders are paid",
                "real time     order-17: logistics, on its way",
            ],
        ),
        pytest.param(
            "sql_filters",
            [
                "medium      order-1",
                "summer sale order-1",
                "by air      order-3",
                "by air      order-4",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ordered_failures",
            [
                "account a: step 1 booked, attempt 1",
                "account a: step 2 booked, attempt 3",
                "account a: step 3 is a dead letter",
                "account a: step 4 booked, attempt 1",
                "account b: step 2 booked, attempt 1",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "several_machines",
            [f"{HERE} handles {number} of {HERE}, queue {number % 4}" for number in (0, 3, 19)],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "windowed_counts",
            [
                "eu: 12 in the window from 1700000000",
                "eu: 1 in the window from 1700000010",
                "eu: 15 in the window from 1700000000",
                "us: 9 in the window from 1700000000",
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_example_prints_what_its_agents_get(
    name: str, lines: list[str], node: Node, tmp_path: Path
) -> None:
    command = f"python {EXAMPLES / name}.py"
    terminal = Terminal(command, tmp_path, node.environ, tmp_path / "log")
    try:
        for line in lines:
            terminal.wait_for(shown_as(line), anywhere=True)
        printed = terminal.printed()
    finally:
        terminal.close()
    if name == "ordered_failures":
        steps = re.findall(r"account a: step (\d) booked", printed)
        assert steps == ["1", "2", "4"]
    if name == "sql_filters":
        assert len(re.findall(r"order-\d$", printed, re.MULTILINE)) == 4


@pytest.mark.proves("documentation", "The examples print what their agents get")
@pytest.mark.slow
def test_the_spark_example_writes_each_payment_once(spark: OneSpark) -> None:
    command = "python", str(EXAMPLES / "spark_sink.py")
    for times in (1, 2):
        log = spark.directory / f"{times}.log"
        log.touch()
        assert ForkedProgram(command, spark.directory, spark.environ, log).wait(patience(240)) == 0
        lines = sorted(line for line in log.read_text().splitlines() if line.startswith("o-"))
        assert lines == ["o-1: 120.0"] * times + ["o-3: 7.0"] * times


@pytest.mark.slow
@pytest.mark.parametrize("page", ["spark", "spark-writer"])
def test_the_first_program_of_a_page_on_spark_runs(page: str, node: Node, spark: OneSpark) -> None:
    for topic in ("Trade", "Delays"):
        node.commands("topics", "create", topic, directory=spark.directory)
    sent = ("send", "Trade", "120", "--tags", "pay", "--property", "amount=120")
    assert node.commands(*sent, directory=spark.directory).code == 0
    program, log = spark.directory / f"{page}.py", spark.directory / f"{page}.log"
    log.touch()
    blocks = blocks_of(DOCS / f"reference/{page}.md")
    program.write_text(next(block.text for block in blocks if block.language == "python"))
    done = ForkedProgram(("python", str(program)), spark.directory, spark.environ, log)
    assert done.wait(patience(240)) == 0, log.read_text()


@pytest.mark.proves(
    "spark",
    "The example of the flights has in its lake, and sends, what pandas computes",
)
@pytest.mark.slow
def test_the_lake_of_flights_has_what_pandas_finds(spark: OneSpark) -> None:
    make_flights = runpy.run_path(str(EXAMPLES / "flights_data.py"))["make_flights"]
    made = pd.DataFrame(make_flights(3000, seed=2013))
    hours = made[made.dep_delay.notna()].groupby(["carrier", "time_hour"]).dep_delay
    totals = hours.agg(["count", "mean"]).reset_index()
    last = sorted({*made.time_hour})[-2:]  # those that the watermark does not close
    expected = {
        f"{carrier} {hour[:10]} {hour[11:16]}": f"{count} flights, {minutes:.2f}"
        for carrier, hour, count, minutes in totals.itertuples(index=False, name=None)
        if hour not in last
    }
    command = f"python {EXAMPLES / 'flights_lake.py'} --delta"
    terminal = Terminal(command, spark.directory, spark.environ, spark.directory / "flights.log")
    try:
        for hour, values in expected.items():
            terminal.wait_for(
                re.compile(f"^{hour}: {values} minutes late$", re.MULTILINE), anywhere=True
            )
        while delta_rows(spark.directory) < len(made):
            terminal.wait_for(re.compile(""), anywhere=True)  # that it still runs
            time.sleep(0.2)
        printed = terminal.printed()
    finally:
        terminal.close()

    said = re.findall(r"^(\w\w .{16}): (.*) minutes late$", printed, re.MULTILINE)
    assert dict(said) == expected
    stored = pd.concat(
        pd.read_parquet(file).assign(carrier=file.parent.name.removeprefix("carrier="))
        for file in committed_files(spark.directory / "lake" / "flights")
    )
    columns = [*made.columns]
    expected_rows = made.sort_values(columns).to_csv(index=False, float_format="%.0f")
    for rows in (stored, DeltaTable(spark.directory / DELTA).to_pandas()):
        rows["time_hour"] = rows["time_hour"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        found = rows[columns].sort_values(columns).to_csv(index=False, float_format="%.0f")
        assert found == expected_rows


def delta_rows(directory: Path) -> int:
    """Return how many rows the example's Delta table has."""
    if not DeltaTable.is_deltatable(str(directory / DELTA)):
        return 0
    return len(DeltaTable(directory / DELTA).to_pyarrow_table(columns=["carrier"]))


@pytest.mark.slow
def test_the_lake_of_trade_has_what_pandas_finds(spark: OneSpark) -> None:
    command, log = ("python", str(EXAMPLES / "trade_lake.py")), spark.directory / "trade.log"
    log.touch()
    assert ForkedProgram(command, spark.directory, spark.environ, log).wait(patience(240)) == 0
    make_trade = runpy.run_path(str(EXAMPLES / "trade_data.py"))["make_trade"]
    made = pd.DataFrame([{"kind": kind, **value} for kind, value in make_trade(500, seed=7)])
    orders, paid = (made[made.kind == kind].drop(columns="kind") for kind in ("order", "pay"))
    both = orders.merge(paid[["order_id", "amount"]], on="order_id", how="left")
    regions = both.groupby("region").agg({"order_id": "count", "amount_y": ["count", "sum"]})
    assert [line for line in log.read_text().splitlines() if "orders are paid" in line] == [
        f"{region}: {count} of {ordered} orders are paid, {amount:.0f} in all"
        for region, ordered, count, amount in regions.itertuples(name=None)
    ]
    lake = spark.directory / "lake" / "trade"
    large = pd.concat(map(pd.read_parquet, committed_files(lake / "large")))
    columns = ["order_id", "region", "amount"]
    for found, expected in (
        (pd.read_parquet(lake / "pays"), paid),
        (large, orders[orders.amount >= 900]),
    ):
        rows = [
            each[columns].sort_values("order_id").to_csv(index=False) for each in (found, expected)
        ]
        assert rows[0] == rows[1]


@pytest.mark.proves("documentation", "The examples print what their agents get")
def test_the_examples_tests_pass(tmp_path: Path) -> None:
    log, script = tmp_path / "log", tmp_path / "run_tests.py"
    log.touch()
    script.write_text(RUN_TESTS)
    command = "python", str(script), "-p", "no:cacheprovider", str(EXAMPLES / "test_shop.py")
    code = ForkedProgram(command, EXAMPLES, os.environ, log).wait(patience(240))
    assert code == 0, log.read_text()
    assert "3 passed" in log.read_text()


def test_every_example_is_short() -> None:
    for file in EXAMPLES.glob("*.py"):
        assert len(file.read_text().splitlines()) <= 80, file
