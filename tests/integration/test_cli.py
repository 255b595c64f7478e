"""The command line against a node that ``rocketray start`` runs, as its users have it.

Ray's authentication is on, as by default: its token lies in a home directory of the test's own.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import CommandServer
from support.harness.commands import COMMAND, ONE_PROCESS, rocketray
from support.harness.patience import patience, wait_until
from support.nodes.stores import GOLDEN_STORE, open_golden

from rocketray import __version__
from rocketray.runtime.files.paths import local_socket

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("cli")
    kept = {name: text for name, text in os.environ.items() if name != "RAY_AUTH_MODE"}
    (directory / "home").mkdir()
    return kept | {"HOME": str(directory / "home"), "ROCKETRAY_DATA": str(directory / "data")}


@pytest.fixture(scope="module")
def node(environ: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A node; what it printed when it was ready. At the end Ctrl-C stops it cleanly."""
    options = ["--json", "--allow-predicates", "rocketray_demo.predicates", *ONE_PROCESS]
    options += ["--metrics-port", "0"]
    process = subprocess.Popen([COMMAND, "start", *options], stdout=subprocess.PIPE, env=environ)
    assert process.stdout
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        left = process.communicate(timeout=patience(60))[0]
    assert (process.returncode, left) == (0, b"")
    assert not Path(environ["ROCKETRAY_DATA"], "node.json").exists()


@pytest.fixture(scope="module")
def run(node: dict[str, Any], environ: dict[str, str]) -> Iterator[CommandServer]:
    with CommandServer(environ) as server:
        yield server


def jsonl(*values: dict[str, Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def test_a_node_says_where_it_runs_and_keeps_its_directory(
    node: dict[str, Any], environ: dict[str, str]
) -> None:
    data = Path(environ["ROCKETRAY_DATA"])
    kept = json.loads((data / "node.json").read_text())
    assert kept.pop("version") == 1
    assert node.keys() - kept.keys() == {"metrics"}
    assert {**node, "startedMs": 0} == {**kept, "startedMs": 0, "metrics": node["metrics"]}
    assert node["data"] == str(data)
    done = rocketray("start", environ=environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"another process runs a node on {data}" in done.stderr


def test_a_node_serves_the_metrics_that_the_command_prints(
    node: dict[str, Any], run: CommandServer
) -> None:
    with urllib.request.urlopen(node["metrics"], timeout=patience(60)) as answer:
        served = answer.read().decode()
    names = re.findall("^# TYPE (.*)$", served, re.MULTILINE)
    assert "rocketmq_topic_number gauge" in names
    assert names == re.findall("^# TYPE (.*)$", run("metrics", "--once").out, re.MULTILINE)


def test_the_life_of_a_topic(run: CommandServer) -> None:
    [made] = run("topics", "create", "Life", "--queues", "2", "--json").lines()
    assert (made["topic"], made["queues"], made["perm"]) == ("Life", 2, 6)
    queues = [(queue["minOffset"], queue["maxOffset"]) for queue in made["queueList"]]
    assert queues == [(0, 0), (0, 0)]
    assert run("topics", "create", "Life", "--queues", "2").code == 0
    other = run("topics", "create", "Life", "--queues", "3")
    assert (other.code, other.out) == (1, "")
    assert "exists with 2 queues" in other.err
    assert run("topics", "create", "life").code == 1, "equal but for case"
    run("send", "Life", "hello", "--queue", "1")
    run("topics", "alter", "Life", "--queues", "3", "--perm", "4")
    [described] = run("topics", "describe", "Life", "--json").lines()
    assert [queue["maxOffset"] for queue in described["queueList"]] == [0, 1, 0]
    assert described["perm"] == 4
    assert (described["retentionMs"], described["retentionBytes"]) == (None, None)
    run("topics", "alter", "Life", "--retention", "72h", "--retention-bytes", "10GiB")
    run("topics", "alter", "Life", "--retention-bytes", "20GiB")
    assert "3d or 20GiB a queue" in run("topics", "list").out
    assert run("topics", "alter", "Life", "--retention", "soon").code == 2
    assert (described["bitmaps"], described["bitmapsKept"]) == ("auto", False)
    [altered] = run("topics", "alter", "Life", "--bitmaps", "on", "--json").lines()
    assert (altered["bitmaps"], altered["bitmapsKept"]) == ("on", True)
    assert "filter bitmaps on, kept now" in run("topics", "describe", "Life").out
    [altered] = run("topics", "alter", "Life", "--bitmaps", "off", "--json").lines()
    assert (altered["bitmaps"], altered["bitmapsKept"]) == ("off", False)
    assert run("topics", "alter", "Life", "--bitmaps", "often").code == 2
    refused = run("send", "Life", "not taken")
    assert (refused.code, refused.out) == (1, "")
    assert "has no write permission" in refused.err
    assert run("topics", "delete", "Life", stdin="n\n").code == 1
    assert "Life" in [topic["topic"] for topic in run("topics", "list", "--json").lines()]
    assert run("topics", "delete", "Life", "--yes", "--json").lines() == [
        {"topic": "Life", "deleted": True}
    ]
    assert "Life" not in run("topics", "list").out
    gone = run("topics", "describe", "Life")
    assert (gone.code, gone.err) == (
        1,
        "rocketray: topic 'Life' does not exist; create it with: rocketray topics create Life\n",
    )


def test_a_message_is_found_by_everything_it_was_sent_with(run: CommandServer) -> None:
    run("topics", "create", "Found", "--queues", "1")
    before = time.time_ns() // 1_000_000
    options = ("--tags", "pay", "--key", "k1", "--key", "k2", "--property", "a=b=c")
    [sent] = run("send", "Found", "zwölf", *options, "--ack", "disk", "--json").lines()
    run("send", "Found", "another", "--key", "k3")
    by_id = run("query", "Found", "--id", sent["offsetMsgId"], "--json").lines()
    [message] = by_id
    assert message["properties"] == {
        "UNIQ_KEY": sent["msgId"],
        "KEYS": "k1 k2",
        "TAGS": "pay",
        "a": "b=c",
    }
    assert (message["queueId"], message["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
    assert run("query", "Found", "--id", sent["msgId"], "--json").lines() == by_id
    assert run("query", "Found", "--unique-key", sent["msgId"], "--json").lines() == by_id
    assert run("query", "Found", "--key", "k2", "--json").lines() == by_id
    times = ("--from", str(before), "--to", str(message["storeTimestamp"]))
    assert run("query", "Found", *times, "--max", "1", "--json").lines() == by_id
    assert run("query", "Found", "--from", "0", "--json").out.count("\n") == 2
    nothing = run("query", "Found", "--key", sent["msgId"])
    assert (nothing.code, nothing.out, nothing.err) == (1, "", "no such message\n")
    assert run("query", "Found", "--id", "nonsense").code == 2
    assert "zwölf" in run("query", "Found", "--key", "k1").out
    long = "many words " * 1000
    run("send", "Found", long, "--key", "long", "--compression", "zstd")
    [found] = run("query", "Found", "--key", "long", "--json").lines()
    assert base64.b64decode(found["body"]).decode() == long


def test_a_message_is_delivered_later_unless_it_is_recalled(run: CommandServer) -> None:
    run("topics", "create", "Later", "--queues", "1")
    [kept] = run("send", "Later", "kept", "--delay-level", "1", "--json").lines()
    for delay_s in (8, 60, 240):  # on a slow machine it may be delivered before it is recalled
        [recalled] = run("send", "Later", "recalled", "--delay", f"{delay_s}s", "--json").lines()
        sent_s = time.monotonic()
        done = run("recall", recalled["recallHandle"])
        if done.code == 0:
            break
    assert (done.code, done.out) == (0, "recalled: it will not be delivered\n")
    month = str(time.time_ns() // 1_000_000 + 30 * 86_400_000)
    assert "rocketray recall" in run("send", "Later", "month", "--deliver-at", month).out
    wait_until(lambda: kept["msgId"] in delivered(run))
    done = run("recall", kept["recallHandle"])
    assert (done.code, done.out) == (1, "too late: it was delivered, or recalled before\n")
    assert "is not a recall handle" in run("recall", "nonsense").err
    assert "40 days at most" in run("send", "Later", "x", "--delay", "41d").err
    assert run("send", "Later", "x", "--delay", "none").code == 2
    assert run("send", "Later", "x", "--delay", "1s", "--delay-level", "1").code == 2
    assert "SCHEDULE_TOPIC_XXXX" not in run("topics", "list").out
    time.sleep(max(0.0, delay_s - (time.monotonic() - sent_s)))
    [after] = run("send", "Later", "after", "--delay", "1s", "--json").lines()
    wait_until(lambda: after["msgId"] in delivered(run))
    assert recalled["msgId"] not in delivered(run)


def delivered(run: CommandServer) -> set[str]:
    """The keys of the messages that the topic has by now."""
    lines = run("query", "Later", "--from", "0", "--json").out.splitlines()
    return {json.loads(line)["properties"]["UNIQ_KEY"] for line in lines}


def test_dead_letters_are_listed_shown_and_redriven(run: CommandServer) -> None:
    assert "no dead letters" in run("dlq", "show", "given_up").err
    run("topics", "create", "%DLQ%given_up", "--queues", "1")
    for number, tag in enumerate(["pay", "ship", "pay"]):
        run("send", "%DLQ%given_up", f"letter {number}", "--tags", tag, "--property", f"n={number}")
    [box] = run("dlq", "list", "--json").lines()
    assert (box["group"], box["letters"], box["redriven"]) == ("given_up", 3, 0)
    shown = run("dlq", "show", "given_up", "--filter", "n > 0", "--json").lines()
    assert [base64.b64decode(one["body"]) for one in shown] == [b"letter 1", b"letter 2"]
    trial = run("dlq", "redrive", "given_up", "--tags", "pay", "--dry-run", "--json").lines()
    assert trial == [{"group": "given_up", "count": 2, "dryRun": True}]
    done = run("dlq", "redrive", "given_up", "--tags", "pay", "--limit", "1")
    assert done.out == "1 dead letter of group given_up is redelivered\n"
    assert run("dlq", "redrive", "given_up").out.startswith("2 ")
    assert run("dlq", "redrive", "given_up").out.startswith("0 ")
    again = run("query", "%RETRY%given_up", "--from", "0", "--json").lines()
    assert [base64.b64decode(one["body"]) for one in again] == [
        b"letter 0",
        b"letter 1",
        b"letter 2",
    ]
    assert "redriven" in run("dlq", "show", "given_up").out


def test_lines_are_sent_in_order_and_consumed_by_groups(
    run: CommandServer, environ: dict[str, str]
) -> None:
    run("topics", "create", "Lines", "--queues", "2")
    values = [
        {"text": str(i), "tags": ("Aa", "BB")[i % 2], "queueId": i % 2, "properties": {"i": str(i)}}
        for i in range(3000)
    ]
    acks = run("send", "Lines", "--jsonl", stdin=jsonl(*values)).lines()
    assert [(ack["queueId"], ack["queueOffset"]) for ack in acks] == [
        (i % 2, i // 2) for i in range(3000)
    ]
    assert list(acks[0]) == ["offsetMsgId", "msgId", "queueId", "queueOffset"]
    group = ("consume", "Lines", "--group", "sql", "--sql", "i BETWEEN 10 AND 19", "--json")
    some = run(*group, "--max", "3").lines()
    rest = run(*group, "--max", "7").lines()
    assert len(some) == 3
    assert {message["properties"]["i"] for message in some + rest} == set(map(str, range(10, 20)))
    assert len(some + rest) == 10, "what was printed is not printed again"
    tagged = run("consume", "Lines", "--group", "tag", "--tags", "Aa", "--max", "1500", "--json")
    assert {message["tags"] for message in tagged.lines()} == {"Aa"}, "BB has the same hash"
    [found] = [g for g in run("groups", "list", "--json").lines() if g["group"] == "tag"]
    assert found["topic"] == "Lines"
    assert found["offsets"]["0"] == 1500
    [explained] = run("explain", acks[1]["msgId"], "--group", "tag", "--json").lines()
    assert explained["cause"] == "tag_collision"
    assert explained["offsetMsgId"] == acks[1]["offsetMsgId"]
    told = run("explain", acks[9]["offsetMsgId"], "--group", "sql")
    assert told.out.startswith("sql_false  ")
    assert "false: i >= 10  (i = '9')" in told.out
    lags = run("groups", "lag", "sql", "--json").lines()
    assert [(lag["queueId"], lag["lag"], lag["exactness"]) for lag in lags] == [
        (0, 0, "exact"),
        (1, 0, "exact"),
    ]
    run("send", "Lines", "one more", "--tags", "Aa", "--queue", "0")
    run("send", "Lines", "and another", "--tags", "BB", "--queue", "0")
    lags = run("groups", "lag", "tag", "--json").lines()
    assert lags[0]["diff"] == 2
    assert [lag["lag"] for lag in lags] == [1, 0], "BB is not Aa"
    [stats] = run("filter", "stats", "tag", "--json").lines()
    assert stats["counters"] == found["counters"]
    assert stats["counters"]["delivered"] == 1500
    assert run("filter", "stats", "absent").code == 1
    assert run("groups", "delete", "tag").code == 0
    assert "tag" not in [g["group"] for g in run("groups", "list", "--json").lines()]
    scanned = run("store", "scan", environ["ROCKETRAY_DATA"], "--json").lines()
    ids = {message["offsetMsgId"] for message in scanned if message["topic"] == "Lines"}
    assert ids > {ack["offsetMsgId"] for ack in acks}


def test_a_class_filter_is_named_by_its_path(run: CommandServer) -> None:
    run("topics", "create", "Flights", "--queues", "1")
    for departure in (1200, 2330):
        run("send", "Flights", json.dumps({"dep_time": departure}))
    where = ("--where", "rocketray_demo.predicates:is_red_eye")
    [one] = run("consume", "Flights", "--group", "c", *where, "--max", "1").out.splitlines()
    assert "2330" in one
    refused = run("consume", "Flights", "--group", "d", "--where", "os:system", "--max", "1")
    assert refused.code == 1
    assert "rocketray start --allow-predicates os" in refused.err
    assert "d" not in [group["group"] for group in run("groups", "list", "--json").lines()]


def test_a_bad_line_ends_the_sending_and_what_was_sent_stays(run: CommandServer) -> None:
    run("topics", "create", "Bad", "--queues", "1")
    lines = jsonl({"text": "kept"}, {"text": "wrong", "tags": "*"}, {"text": "not read"})
    done = run("send", "Bad", "--jsonl", stdin=lines)
    assert done.code == 1
    assert [json.loads(line)["queueOffset"] for line in done.out.splitlines()] == [0]
    assert "line 2 of the input" in done.err
    assert run("query", "Bad", "--from", "0").out.count("\n") == 1
    done = run("send", "Bad", "--format", "%k|%s", stdin="k|by format\nno key\n")
    assert (done.code, len(done.out.splitlines())) == (1, 1)
    assert "line 2 of the input: not in the form: no '|' after %k" in done.err
    assert run("query", "Bad", "--key", "k").out.endswith("k  by format\n")
    unknown = run("send", "Absent", "--jsonl", stdin=lines)
    assert (unknown.code, unknown.out) == (1, "")
    assert "rocketray topics create Absent" in unknown.err


def test_an_ack_waits_for_no_further_line_and_survives_sigkill(
    run: CommandServer, environ: dict[str, str]
) -> None:
    run("topics", "create", "Killed", "--queues", "4")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environ}
    sender = subprocess.Popen([COMMAND, "send", "Killed", "--jsonl"], **pipes)
    assert sender.stdin
    assert sender.stdout
    acks = []
    for i in range(20):  # one at a time: the input stays open, and the ack comes all the same
        sender.stdin.write(jsonl({"text": str(i)}).encode())
        sender.stdin.flush()
        acks.append(json.loads(sender.stdout.readline()))
    [listed] = run("producers", "Killed", "--json").lines()
    [process] = [each for each in listed["producers"] if each["pid"] == sender.pid]
    assert (process["release"], process["batches"]) == (__version__, 20)
    assert process["queues"] == {"Killed": [0, 1, 2, 3]}
    assert process["program"].endswith("rocketray send")
    sender.stdin.write(jsonl(*({"text": str(i)} for i in range(20, 1000))).encode())
    sender.stdin.flush()
    acks += [json.loads(sender.stdout.readline()) for _ in range(100)]
    sender.kill()
    acks += [json.loads(line) for line in sender.stdout if line.endswith(b"\n")]
    sender.stdout.close()
    with suppress(BrokenPipeError):
        sender.stdin.close()
    sender.wait()
    stored = {
        message["offsetMsgId"]: message
        for message in run("store", "scan", environ["ROCKETRAY_DATA"], "--json").lines()
    }
    for ack in acks:
        message = stored[ack["offsetMsgId"]]
        assert message["properties"]["UNIQ_KEY"] == ack["msgId"]
        assert (message["queueId"], message["queueOffset"]) == (ack["queueId"], ack["queueOffset"])
    assert run("send", "Killed", "goes on").code == 0


def test_a_rocketmq_store_is_imported_and_its_ids_still_answer(
    run: CommandServer, environ: dict[str, str]
) -> None:
    with open_golden() as store:
        theirs = [message for message in store.reads.scan() if message.topic == "TopicA"]
    importing = ("store", "import", GOLDEN_STORE, "--topic", "TopicA", "--json")
    interrupted = subprocess.Popen([COMMAND, *map(str, importing)], env=environ)
    time.sleep(0.5)  # it may have stored nothing yet, or some batches, or all
    interrupted.kill()
    interrupted.wait()
    [report] = run(*importing).lines()
    assert (report["complete"], report["imported"] + report["alreadyThere"]) == (True, len(theirs))
    for old in theirs[::60]:
        [found] = run("query", "TopicA", "--id", old.offset_message_id, "--json").lines()
        assert found["properties"] == {
            **old.properties,
            "IMPORTED_OFFSET_ID": old.offset_message_id,
        }
        assert base64.b64decode(found["body"]) == old.body
        assert (found["queueId"], found["storeTimestamp"]) == (old.queue_id, old.store_timestamp_ms)
        assert run("query", "TopicA", "--id", found["offsetMsgId"], "--json").lines() == [found]
        for key in old.keys:
            assert found in run("query", "TopicA", "--key", key, "--max", "1000", "--json").lines()
    assert run("query", "TopicA", "--id", "7F" * 16).out == ""
    expected = sum(message.tags == "BB" for message in theirs)
    group = ("consume", "TopicA", "--group", "imported", "--tags", "BB", "--json")
    assert len(run(*group, "--max", str(expected)).lines()) == expected
    [again] = run(*importing).lines()
    assert (again["imported"], again["alreadyThere"]) == (0, len(theirs))


def test_without_the_nodes_socket_commands_join_ray_and_say_the_same(
    run: CommandServer, environ: dict[str, str]
) -> None:
    run("topics", "create", "Asked", "--queues", "2")
    run("send", "Asked", "hello", "--key", "k")
    commands = (
        ("topics", "list", "--json"),
        ("topics", "describe", "Asked", "--json"),
        ("query", "Asked", "--key", "k", "--json"),
        ("explain", "k", "--group", "nobody", "--json"),
        ("groups", "list", "--json"),
        ("groups", "members", "--json"),
        ("dlq", "list", "--json"),
        ("transactions", "--json"),
        ("topics", "describe", "Askd"),
    )
    asked = [run(*command) for command in commands]
    assert asked[1].lines()[0]["topic"] == "Asked"
    socket = local_socket(Path(environ["ROCKETRAY_DATA"]))
    away = socket.rename(socket.with_name("away"))
    try:
        assert [run(*command) for command in commands] == asked
    finally:
        away.rename(socket)
