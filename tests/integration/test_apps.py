"""Apps that are brought up, scaled and taken down by commands, on a node that runs beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import CommandServer
from support.harness.commands import COMMAND, ONE_PROCESS
from support.harness.patience import patience, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

# An app of its module's name, so that each test has its own. Each handled number is a line in a
# file of its process: what comes twice is there twice.
APP = """
import os
import pathlib
import rocketray as rr

name = pathlib.Path(__file__).stem
app = rr.App(name)
orders = app.topic(f"{name}-orders", value_type=bytes, queues=2)

@app.agent(orders, max_attempts=0)
async def note(stream):
    crashed = pathlib.Path(__file__).with_name("crashed")
    lines = pathlib.Path(__file__).with_name(f"seen-{name}-{os.getpid()}")
    with lines.open("ab", buffering=0) as seen:
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

# An app that runs until its file says what it is to do at its start.
FAILING = (
    APP
    + """
@app.task
async def begin():
    asked = pathlib.Path(__file__).with_suffix(".asked").read_text()
    if asked == "raise":
        raise ValueError("no database at db:5432")
    if asked == "exit":
        os._exit(9)
"""
)


# An app with a table, so that its agents keep order, and with values that are decoded.
LEDGER = """
import rocketray as rr

app = rr.App("ledger")
entries = app.topic("ledger-entries", value_serializer="json", queues=1)
totals = app.Table("totals", default=int)
amounts = app.SetTable("amounts")

@app.agent(entries, max_attempts=4)
async def book(stream):
    async for event in stream.events():
        totals["all"] += event.value["amount"]
        amounts["all"].add(event.value["amount"])
        print("booked", event.value)
"""


# An app with a sink that works and one that fails; the file of a sink's lines is its proof.
LAKES = """
import pathlib
import rocketray as rr

app = rr.App("lakes")
orders = app.topic("lakes-orders", value_type=bytes, queues=1)

@app.agent(orders)
async def note(stream):
    async for _ in stream:
        pass

@app.sink(orders, schema="queueOffset bigint", trigger="10 milliseconds")
def lake(frame, batch_id):
    with open("seen-lake", "a") as lines:
        for row in frame.collect():
            print(row.queueOffset, file=lines)

@app.sink(orders, schema="queueOffset bigint", trigger="10 milliseconds")
def broken(frame, batch_id):
    if frame.count():
        raise ValueError("no bucket")
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("apps")
    for name in ("shop", "kiosk", "stall"):
        (directory / f"{name}.py").write_text(APP)
    (directory / "failing.py").write_text(FAILING)
    (directory / "ledger.py").write_text(LEDGER)
    (directory / "lakes.py").write_text(LAKES)
    return directory


@pytest.fixture(scope="module")
def environ(directory: Path) -> dict[str, str]:
    return dict(os.environ) | {"ROCKETRAY_DATA": str(directory / "data")}


@pytest.fixture(scope="module")
def node(environ: dict[str, str], directory: Path) -> Iterator[CommandServer]:
    """Commands for a node that ends with the module, and takes down what is up then."""
    process = subprocess.Popen(
        [COMMAND, "start", "--json", *ONE_PROCESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )
    assert process.stdout
    assert process.stdout.readline()
    try:
        with CommandServer(environ, directory) as server:
            yield server
            if not hosts(server):
                server("up", "shop:app", "--detach")
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=patience(90))
    assert process.returncode == 0, said.decode()
    assert b"draining 1 host of apps" in said


@pytest.fixture
def run(node: CommandServer) -> CommandServer:
    """Commands for the node; what a test leaves up, also one that fails, is up for no other."""
    for app in {host["app"] for host in hosts(node)}:
        node("down", app)
    return node


def hosts(run: CommandServer) -> list[dict[str, Any]]:
    return [line for line in run("status", "--over", "0", "--json").lines() if "app" in line]


def seen(directory: Path, app: str) -> list[int]:
    files = directory.glob(f"seen-{app}-*")
    return sorted(int(line) for file in files for line in file.read_text().split())


def send(run: CommandServer, app: str, numbers: range) -> None:
    """Send to each queue in turn."""
    for number in numbers:
        done = run("send", f"{app}-orders", str(number), "--queue", str(number % 2))
        assert done.code == 0, done.err


def queues(found: list[dict[str, Any]]) -> list[list[int]]:
    return [[queue["queueId"] for queue in host["queues"]] for host in found]


def counts(found: list[dict[str, Any]], name: str) -> list[int]:
    return [agent[name] for host in found for agent in host["agents"]]


def test_the_life_of_an_app(run: CommandServer, directory: Path) -> None:
    up = run("up", "shop:app", "--consumers", "2", "--detach", "--json")
    assert [(host["app"], host["host"]) for host in up.lines()] == [("shop", 0), ("shop", 1)]
    wait_until(lambda: sorted(map(len, queues(hosts(run)))) == [1, 1], "the queues are not shared")
    send(run, "shop", range(24))
    wait_until(lambda: len(seen(directory, "shop")) >= 24, "not all messages were handled")
    found = hosts(run)
    assert [host["state"] for host in found] == ["running", "running"]
    assert sum(counts(found, "finished")) == 24
    assert sorted(queue for each in queues(found) for queue in each) == [0, 1]
    for host in found:
        logged = Path(host["logs"][1]).read_text()
        for noise in ("blocking ray.get", "RayDeprecationWarning", "mode.timers"):
            assert noise not in logged

    run("send", "shop-orders", "bad")
    wait_until(lambda: sum(counts(hosts(run), "deadLettered")) == 1, "it is no dead letter")
    assert sum(counts(hosts(run), "failures")) == 1
    assert "dead letters" in run("status", "shop").out
    failed = [line for line in run("logs", "shop", "--json").lines() if line["level"] == "ERROR"]
    assert {(line["topic"], bool(line["messageId"])) for line in failed} == {("shop-orders", True)}
    assert {line["part"] for line in run("logs", "node", "--json").lines()} <= {"node"}, "no news"

    run("scale", "shop", "1")
    wait_until(lambda: queues(hosts(run)) == [[0, 1]], "the other host took nothing over")
    send(run, "shop", range(24, 36))
    wait_until(lambda: len(seen(directory, "shop")) >= 36, "not all messages were handled")
    [before] = hosts(run)
    module = directory / "shop.py"
    text = module.read_text()
    module.write_text(f"{text}\n# changed\n")
    try:
        [replaced] = run("up", "shop:app", "--replace", "--json").lines()
    finally:
        module.write_text(text)
    assert (replaced["host"], before["host"], replaced["state"]) == (1, 0, "running")
    assert replaced["version"] != before["version"]
    assert run("down", "shop", "--json").lines() == [{"app": "shop", "ended": 1, "notDrained": []}]
    assert hosts(run) == []


@pytest.mark.proves(
    "spark",
    "`rocketray up`, `status`, `scale` and `down` run and show sinks, and what failed where",
)
@pytest.mark.slow
def test_sinks_are_up_in_one_host_of_their_own(run: CommandServer, directory: Path) -> None:
    up = run("up", "lakes:app", "--detach", "--json")
    assert [(host["host"], host["restarts"]) for host in up.lines()] == [(0, 0), ("sinks", 0)]
    for number in range(3):
        assert run("send", "lakes-orders", str(number)).code == 0
    seen_by_lake = directory / "seen-lake"
    wait_until(lambda: seen_by_lake.exists() and seen_by_lake.read_text() == "0\n1\n2\n", "no lake")
    wait_until(lambda: hosts(run)[1]["sinks"][1]["error"], "it does not say what failed")
    lake, broken = hosts(run)[1]["sinks"]
    assert (lake["sink"], lake["state"], lake["error"]) == ("lake", "running", None)
    assert broken["error"] == "ValueError: no bucket"
    line = LAKES[: LAKES.index('raise ValueError("no b')].count("\n") + 1
    assert broken["place"] == f"{directory / 'lakes.py'}:{line}"
    wait_until(lambda: hosts(run)[1]["sinks"][0]["lag"] == 0, "it reports no lag")
    shown = run("status", "lakes", "--over", "0").out
    assert "lakes sink broken failed" in shown
    assert f": ValueError: no bucket ({broken['place']})" in shown

    wrong = run("scale", "broken", "2")
    assert (wrong.code, wrong.out) == (1, "")
    assert "'broken' is a sink of app 'lakes', and all sinks of an app run in one host" in wrong.err
    assert run("down", "lakes", "--json").lines() == [
        {"app": "lakes", "ended": 2, "notDrained": []}
    ]
    logged = Path(up.lines()[1]["logs"][1]).read_text()
    assert "\tat " not in logged
    assert "sink lake reads lakes-orders: first batch" in logged


def test_a_message_that_does_not_decode_is_seen_everywhere_and_given_up(
    run: CommandServer,
) -> None:
    up = run("up", "ledger:app", "--detach")
    assert up.code == 0, up.err
    run("send", "ledger-entries", "{broken", "--key", "broken")
    run("send", "ledger-entries", '{"amount": 7}', "--key", "behind")
    wait_until(lambda: counts(hosts(run), "decodeFailures")[0] > 2, "it is not tried again")

    held = "held at offset 0: attempt "
    shown = run("status", "ledger").out
    assert "group ledger-book is held in queue 0 of topic ledger-entries, at offset 0: " in shown
    progress = run("groups", "progress", "ledger-book").out
    assert f"queue 0 is {held}" in progress
    assert " of 5, JSONDecodeError: " in progress
    explained = run("explain", "broken", "--group", "ledger-book")
    assert explained.out.startswith("failing ")
    assert held in explained.out
    assert run("explain", "behind", "--group", "ledger-book").out.startswith("on_its_way ")

    wait_until(lambda: counts(hosts(run), "deadLettered") == [1], "it is no dead letter")
    wait_until(lambda: counts(hosts(run), "finished") == [2], "the queue does not go on")
    [letter] = run("dlq", "show", "ledger-book", "--json").lines()
    assert letter["attempts"] == 5
    assert letter["reason"].startswith("JSONDecodeError: ")
    assert "JSONDecodeError" in run("dlq", "list").out

    [host] = hosts(run)
    printed, logged = map(Path, host["logs"])
    shown = run("status", "--over", "0").out
    assert "what they print and log: rocketray logs ledger\n" in shown
    assert printed.name not in shown
    assert "booked {'amount': 7}" in printed.read_text()
    said = logged.read_text()
    assert "these agents keep the order of each queue: book;" in said
    assert said.count("offset 0, attempt ") == 5
    assert said.count("Traceback (most recent call last)") <= 2  # with what it was raised from


@pytest.mark.proves(
    "faust", "`rocketray tables get` has what the app has committed, whether it runs or not"
)
def test_a_table_is_asked_while_its_app_runs_and_when_it_does_not(run: CommandServer) -> None:
    up = run("up", "ledger:app", "--detach")
    assert up.code == 0, up.err
    before = run("tables", "get", "ledger-totals", "all")
    counted = int(before.out or 0)
    assert before.code == (0 if counted else 1)
    for amount in (20, 22):
        run("send", "ledger-entries", json.dumps({"amount": amount}))
    wait_until(
        lambda: run("tables", "get", "totals", "all").out == f"{counted + 42}\n", "it is not there"
    )
    run("down", "ledger")
    assert hosts(run) == []
    [found] = run("tables", "get", "totals", "all", "--json").lines()
    assert (found["table"], found["key"], found["value"]) == ("ledger-totals", "all", counted + 42)
    assert "ledger-totals" in {each["table"] for each in run("tables", "list", "--json").lines()}
    nothing = run("tables", "get", "totals", "none")
    assert (nothing.code, nothing.out) == (1, "")


@pytest.mark.proves("groups", "A deleted topic stops its agent alone, which waits for it")
def test_an_app_with_a_table_of_sets_is_replaced_waits_for_its_topic_and_goes_down(
    run: CommandServer, directory: Path
) -> None:
    assert run("up", "ledger:app", "--detach").code == 0
    run("send", "ledger-entries", '{"amount": 5}')
    wait_until(lambda: counts(hosts(run), "finished") == [1], "the message was not handled")
    [before] = hosts(run)
    with (directory / "ledger.py").open("a") as module:
        module.write("\n# changed\n")
    [replaced] = run("up", "ledger:app", "--replace", "--json").lines()
    assert (replaced["state"], replaced["pid"] != before["pid"]) == ("running", True)

    assert run("topics", "delete", "ledger-entries", "--yes").code == 0
    said = "topic ledger-entries was deleted; group ledger-book waits until it exists again"
    wait_until(lambda: said in run("status", "ledger").out, "it does not say that it waits")
    assert [host["state"] for host in hosts(run)] == ["running"]
    assert "ledger-entries" not in run("topics", "list").out
    down = run("down", "ledger", "--json").lines()
    assert down == [{"app": "ledger", "ended": 1, "notDrained": []}]


@pytest.mark.slow
def test_a_filter_that_failed_is_shown_of_a_group_without_an_app(run: CommandServer) -> None:
    run("topics", "create", "Trade", "--queues", "1")
    run("send", "Trade", "x", "--property", "amount=abc")
    where = "consume", "Trade", "--group", "audit", "--sql", "amount > 100"
    assert run(*where, "--max", "1", "--timeout", "5", "--json").out == ""
    said = {"group": "audit", "topic": "Trade", "filterErrors": 1, "held": []}
    lines = run("status", "--json", "--over", "0.1").lines()
    assert said in lines
    [rates] = [line["rates"] for line in lines if "rates" in line]
    assert {"topic": "Trade", "storedPerS": 0.0, "unknown": None} in rates["topics"]
    assert [[*line] for line in lines[-2:]] == [["unflushed"], ["verified"]]
    assert (
        "group audit, topic Trade: the filter failed on 1 message; "
        in run("status", "--over", "0").out
    )


@pytest.mark.slow
def test_an_app_in_the_foreground_survives_a_crash_and_ends_with_its_command(
    run: CommandServer, directory: Path, environ: dict[str, str]
) -> None:
    command = [COMMAND, "up", "kiosk:app", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=directory, env=environ)
    assert process.stdout
    before = json.loads(process.stdout.readline())
    send(run, "kiosk", range(12))
    wait_until(lambda: len(seen(directory, "kiosk")) >= 12, "not all messages were handled")
    assert seen(directory, "kiosk") == list(range(12))
    run("send", "kiosk-orders", "crash")
    wait_until(lambda: hosts(run)[0]["restarts"] > 0, "the actor did not end")
    wait_until(lambda: hosts(run)[0]["state"] == "running", "it did not come back")
    assert hosts(run)[0]["pid"] != before["pid"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patience(60))
    assert process.returncode == 0
    assert hosts(run) == []


def test_an_app_that_fails_at_its_start_is_told_with_its_reason_and_not_up(
    run: CommandServer, directory: Path
) -> None:
    asked = directory / "failing.asked"
    asked.write_text("raise")
    failed = run("up", "failing:app", "--detach", "--consumers", "2")
    assert (failed.code, failed.out) == (1, "")
    line = FAILING[: FAILING.index('raise ValueError("no d')].count("\n") + 1
    place = directory / f"failing.py:{line}"
    assert f"app 'failing:app' did not start: ValueError: no database at db:5432 ({place})" in (
        failed.err
    )
    assert hosts(run) == []
    asked.write_text("exit")
    ended = run("up", "failing:app", "--detach")
    assert ended.code == 1
    assert "app 'failing:app' did not start: its process ended" in ended.err
    assert hosts(run) == []


@pytest.mark.slow
def test_a_host_that_fails_at_each_restart_says_why_and_can_be_taken_down(
    run: CommandServer, directory: Path
) -> None:
    asked = directory / "failing.asked"
    asked.write_text("run")
    up = run("up", "failing:app", "--detach", "--json").lines()
    assert [(host["restarts"], host["lastError"]) for host in up] == [(0, None)]
    asked.write_text("raise")
    os.kill(up[0]["pid"], signal.SIGKILL)
    wait_until(lambda: hosts(run)[0]["lastError"] is not None, "it does not say why")
    host = hosts(run)[0]
    assert host["restarts"] > 0
    assert host["state"] in ("restarting", "starting")
    assert (host["lastError"]["type"], host["lastError"]["message"]) == (
        "ValueError",
        "no database at db:5432",
    )
    shown = run("status", "--over", "0").out
    assert "failing host 0 failed at" in shown
    assert "ValueError: no database at db:5432 (" in shown
    assert run("down", "failing", "--json").lines() == [
        {"app": "failing", "ended": 1, "notDrained": []}
    ]
    assert hosts(run) == []


def test_what_cannot_be_done_says_what_to_do(
    run: CommandServer, tmp_path: Path, directory: Path, environ: dict[str, str]
) -> None:
    command = [COMMAND, "up", "stall:app", "--detach"]
    at_once = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=directory, env=environ)
    here = run("up", "stall:app", "--detach")
    _, there = at_once.communicate(timeout=patience(120))
    assert sorted((here.code, at_once.returncode)) == [0, 1], "one of two at the same time"
    said = here.err + there.decode()
    assert "app 'stall' is " in said
    assert "Traceback" not in said
    again = run("up", "stall:app", "--detach")
    assert (again.code, again.out) == (1, "")
    assert "app 'stall' is up with 1 host" in again.err
    assert "to run changed code: rocketray up stall:app --replace" in again.err
    (directory / "twin.py").write_text(APP.replace("pathlib.Path(__file__).stem", "'stall'"))
    twin = run("up", "twin:app", "--detach")
    assert "app 'stall' is up with 1 host from stall:app, not from twin:app" in twin.err
    assert "No module named 'nowhere'" in run("up", "nowhere:app").err
    assert "an app is named as module:app" in run("up", "no-colon").err
    nothing = run("down", "nobody")
    assert (nothing.code, nothing.out) == (1, "")
    assert "app 'nobody' is not up; these are: stall" in nothing.err
    assert run("scale", "nobody", "2").code == 1
    no_node = run("status", "--data", tmp_path / "none")
    assert "rocketray start --data" in no_node.err
