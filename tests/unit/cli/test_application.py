"""The command as a whole: help, version, exit codes, and what it does not import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from support.harness.command_server import run_here
from support.harness.commands import rocketray
from support.harness.patience import patience

from rocketray import __version__
from rocketray.base.ack_mode import AckMode
from rocketray.broker.topics.catalog import BitmapMode
from rocketray.cli.application import command_tree
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import ErrorPolicy
from rocketray.store.formats.compression import CompressionKind

SLOW_IMPORTS = ("ray", "faust", "pyspark")
IMPORTED = """
import sys
from rocketray.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted(set({names!r}) & set(sys.modules)), file=sys.stderr)
"""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL = dict(commands(command_tree()))


def test_the_commands_are_those_that_were_promised() -> None:
    assert {
        " ".join(path)
        for path, command in ALL.items()
        if not hasattr(command, "commands") and not ALL[path[:1]].hidden
    } == {
        "demo",
        "start",
        "disk",
        "ping",
        "topology",
        "up",
        "status",
        "logs",
        "scale",
        "down",
        "tables list",
        "tables get",
        "staged",
        "console",
        "metrics",
        "tail",
        "doctor",
        "transactions",
        "move-queue",
        "drain",
        "rebalance",
        "backup",
        "restore",
        "topics create",
        "topics list",
        "topics describe",
        "topics alter",
        "topics delete",
        "groups clone",
        "groups list",
        "groups delete",
        "groups export",
        "groups lag",
        "groups members",
        "groups migrate",
        "groups progress",
        "groups reset",
        "groups seek",
        "groups skip",
        "producers",
        "send",
        "query",
        "consume",
        "explain",
        "dlq list",
        "dlq show",
        "dlq redrive",
        "filter check",
        "filter diff",
        "filter eval",
        "filter list",
        "filter preview",
        "filter remove",
        "filter save",
        "filter show",
        "filter stats",
        "store get",
        "store import",
        "store info",
        "store query",
        "store topics",
        "store scan",
        "store upgrade",
        "store verify",
        "store recover",
        "recall",
        "bench",
    }


def test_what_a_command_is_for_is_told_in_whole_where_it_is_listed() -> None:
    for path, command in ALL.items():
        if hasattr(command, "commands"):
            listed = run_here(*path, "--help").out.partition("\nOptions:\n")[2]
            assert listed
            assert "..." not in listed, f"{' '.join(path)}: begin its help with a shorter sentence"


def test_help_lists_the_commands_in_five_sections_by_day_of_use() -> None:
    listed: dict[str, list[str]] = {}
    for line in run_here("--help").out.partition("--help ")[2].splitlines()[2:]:
        if line.endswith(":"):
            listed[line.removesuffix(":")] = []
        elif line:
            listed[[*listed][-1]].append(line.split()[0])
    assert {title: names[:4] for title, names in listed.items()} == {
        "Run": ["start", "status", "logs", "console"],
        "Messages": ["send", "consume", "tail", "query"],
        "Manage": ["topics", "groups", "filter", "dlq"],
        "Apps": ["up", "scale", "down", "tables"],
        "Cluster and store": ["topology", "move-queue", "drain", "rebalance"],
    }
    names = [name for those in listed.values() for name in those]
    assert sorted(names) == sorted(path[0] for path in ALL if len(path) == 1 and path != ("group",))


def test_what_answers_tests_can_be_called_and_is_not_listed() -> None:
    assert "eval" not in run_here("filter", "--help").out
    assert run_here("filter", "eval", "--help").out.startswith("Usage: rocketray filter eval")
    shown = run_here("store", "query", "--help").out
    options = {name for each in ALL["store", "query"].params for name in each.opts}
    assert {"--jsonl", "--limits", "--filters"} <= options
    assert not [name for name in ("--jsonl", "--limits", "golden", "--filters") if name in shown]


def test_group_is_another_name_of_groups_that_help_does_not_show() -> None:
    assert ALL["group",].commands.keys() == ALL["groups",].commands.keys()
    shown = [line.split()[0] for line in rocketray("--help").stdout.splitlines() if line.strip()]
    assert "groups" in shown
    assert "group" not in shown
    assert "Usage: rocketray group progress" in rocketray("group", "progress", "--help").stdout


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_and_every_option_has_help(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert len(command.help) > 20, "a sentence, at least"
    for parameter in command.params:
        if parameter.name != "help":
            assert parameter.help, f"{parameter.name} has no help"


def test_the_choices_of_an_option_are_those_of_the_library() -> None:
    """Commands write them again: the library's modules take long to import."""
    choices = {
        "ack": AckMode,
        "bitmaps": BitmapMode,
        "compression": CompressionKind,
        "dialect": Dialect,
        "on_filter_error": ErrorPolicy,
    }
    offered = {
        (name, get_args(kind))
        for command in ALL.values()
        if not hasattr(command, "commands")
        for name, hint in get_type_hints(command.callback).items()
        for kind in (hint, *get_args(hint))
        if get_origin(kind) is Literal
    }
    of_a_command = {("limits", ("golden", "broker")), ("ack", (*get_args(AckMode), "node"))}
    assert offered - of_a_command == {(name, get_args(kind)) for name, kind in choices.items()}


def test_a_command_runs_in_a_thread_of_a_program() -> None:
    with ThreadPoolExecutor() as threads:
        assert threads.submit(run_here, "--version").result() == run_here("--version")


def test_version_both_ways() -> None:
    assert rocketray("--version").stdout == f"rocketray {__version__}\n"
    module = [sys.executable, "-m", "rocketray", "--version"]
    assert subprocess.check_output(module, text=True) == f"rocketray {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("send", "--help"),
        ("groups", "seek", "-h"),
        ("filter", "eval"),
        ("filter", "check", "a > 5"),
        ("store", "scan", "."),
    ],
    ids=" ".join,
)
def test_what_needs_no_node_imports_neither_ray_nor_faust_nor_spark(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "shards").mkdir()
    script = IMPORTED.format(names=SLOW_IMPORTS)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input='{"expr": "a > 1"}\n{"expr": "a", "type": "TAG", "tag": "a"}',
        capture_output=True,
        text=True,
        timeout=patience(60),
        cwd=tmp_path,
        check=True,
    )
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nonsense",), "No such command"),
        (("topics", "create"), "Missing argument"),
        (("topics", "create", "a.b"), "characters that are not allowed: '.'"),
        (("topics", "create", "A", "--queues", "0"), "1 to 1024 queues"),
        (("topics", "alter", "A"), "name what to change"),
        (("groups", "delete", "a b"), "characters that are not allowed: ' '"),
        (("send", "A"), "BODY"),
        (("send", "A", "text", "--tags", "*"), "can never be matched"),
        (("send", "A", "text", "--property", "a"), "NAME=VALUE"),
        (("send", "A", "text", "--jsonl"), "--jsonl"),
        (("send", "A", "text", "--ack", "luck"), "luck"),
        (("consume", "A"), "--group"),
        (("consume", "A", "--group", "g", "--sql", "a >"), "^"),
        (("consume", "A", "--group", "g", "--tags", "a", "--sql", "a"), "exclude each other"),
        (("query", "A"), "give one of"),
        (("query", "A", "--id", "1", "--key", "2"), "give one of"),
        (("query", "A", "--key", ""), "is empty"),
        (("query", "A", "--from", "yesterday"), "is not a time"),
        (("bench", "nonsense"), "there is no benchmark"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_usage_is_told_apart(arguments: tuple[str, ...], says: str) -> None:
    done = run_here(*arguments)
    assert says in done.err
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [("topics", "list"), ("groups", "list"), ("send", "A", "text"), ("query", "A", "--key", "k")],
    ids=" ".join,
)
def test_without_a_node_the_command_that_starts_one_is_named(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = run_here(*arguments, "--data", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"rocketray: no node runs on {tmp_path}; start one with: "
        f"rocketray start --data {tmp_path}\n"
    )


def test_a_reader_that_went_away_is_no_traceback() -> None:
    pipe = subprocess.Popen(
        [sys.executable, "-m", "rocketray", "filter", "eval"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert pipe.stdin
    assert pipe.stdout
    assert pipe.stderr
    pipe.stdout.close()
    pipe.stdin.write(b'{"expr": "a > 1"}\n' * 100)
    pipe.stdin.close()
    errors = pipe.stderr.read()
    pipe.stderr.close()
    assert pipe.wait(timeout=patience(60)) == 141
    assert errors == b""
