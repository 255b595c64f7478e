"""Options whose defaults are in the settings file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from support.harness.command_server import run_here
from typer.core import TyperCommand, TyperOption

from rocketray.base.settings_file import SettingsFile
from rocketray.cli.application import command_tree
from rocketray.cli.option_defaults import option_defaults
from rocketray.errors import ConfigError

FILE = Path("/etc/rocketray.toml")


def test_names_of_options_become_those_of_parameters() -> None:
    settings = SettingsFile(
        FILE,
        commands={
            "start": {"fetch-port": 7070, "allow_predicates": ["a", "b"], "cluster": "trade"},
            "groups": {"migrate": {"timeout": 5}},
            "status": {"over": 0.5},
            "consume": {"broadcast": True},
        },
    )
    assert option_defaults(command_tree(), settings) == {
        "start": {"fetch_port": "7070", "allow_predicates": ["a", "b"], "cluster": "trade"},
        "groups": {"migrate": {"timeout_s": "5"}},
        "status": {"over": "0.5"},
        "consume": {"broadcast": True},
    }
    assert option_defaults(command_tree(), SettingsFile(commands={"x": 1})) == {}


@pytest.mark.parametrize(
    ("table", "is_on"),
    [
        ({"property-filter": False}, False),
        ({"no-property-filter": True}, False),
        ({"no-property-filter": False}, True),
    ],
)
def test_the_negation_of_a_flag_turns_it_off(table: dict[str, bool], is_on: bool) -> None:
    found = option_defaults(command_tree(), SettingsFile(FILE, commands={"start": table}))
    assert found == {"start": {"property_filter": is_on}}


def test_an_error_of_a_command_names_the_file_the_table_and_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rocketray.toml"
    file.write_text("[send]\ndelay = 5\n")
    done = run_here("send", "Trade", "x")
    assert done.code == 2
    assert "'5' is not a time like 90s, 30m, 72h or 7d" in done.err
    assert f"it is set in {file}: delay in [send]" in done.err
    file.write_text("[topics.create]\nretention = 5\nqueues = 2\n")
    done = run_here("topics", "create", "Trade", "--queues", "4")
    assert done.code == 2
    said = f"'5' is not a time like 90s, 30m, 72h or 7d, nor none; {file} sets retention in "
    assert f"{said}[topics.create]" in done.err
    assert "queues in" not in done.err, "the command line gave another"


def test_commands_that_are_not_loaded_are_left_out() -> None:
    settings = SettingsFile(FILE, commands={"start": {"ack": "disk"}, "status": {"nonsense": 1}})
    found = option_defaults(command_tree("start"), settings, ["start", "status"])
    assert found == {"start": {"ack": "disk"}}


@pytest.mark.parametrize(
    ("commands", "says"),
    [
        ({"stat": {}}, "there is no command for [stat]; did you mean [start]?"),
        ({"groups": {"migrat": {}}}, "no command for [groups.migrat]; did you mean [groups.mig"),
        ({"groups": {"migrate": 5}}, "migrate"),
        ({"start": {"akc": "disk"}}, "unknown setting 'akc' in [start]; did you mean ack?"),
        ({"start": {"json": True}}, "unknown setting 'json' in [start]"),
        ({"status": {"data": "/a"}}, "data in [status]; put it at the top of the file"),
        ({"start": {"ack": {"a": 1}}}, "ack in [start] is {'a': 1}; give a text or a number"),
        ({"start": {"ack": True}}, "ack in [start] is True; give a text or a number"),
        ({"send": {"delay": [5]}}, "delay in [send] is [5]; give a text or a number"),
        ({"start": {"join": "yes"}}, "join in [start] is 'yes'; give true or false"),
        (
            {"start": {"allow-predicates": [["a"]]}},
            "is [['a']]; give a text or a number, or a list of them",
        ),
    ],
    ids=str,
)
def test_unknown_names_are_errors(commands: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        option_defaults(command_tree(), SettingsFile(FILE, commands=commands))
    assert says in str(raised.value)


def test_a_command_uses_the_file_unless_an_option_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCKETRAY_DATA", raising=False)
    (tmp_path / "rocketray.toml").write_text('data = "kept"\n[logs]\nlines = -1\n')
    wrong = run_here("logs")
    assert wrong.code == 2
    assert "'--lines' / '-n'" in wrong.err
    assert f"; it is set in {tmp_path / 'rocketray.toml'}" in wrong.err
    assert "it is set in" not in run_here("logs", "-n", "-1").err
    assert f"no process has logged on {tmp_path / 'kept'}" in run_here("logs", "-n", "1").err
    assert (
        f"has logged on {tmp_path / 'x'}" in run_here("logs", "-n1", "--data", tmp_path / "x").err
    )
    assert run_here("logs", "--help").code == 0


def test_a_number_in_the_file_is_one_of_an_option_with_a_notation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = "scrub-rate = 0\nqueues-per-process = 4\nallow-predicates = ['a']\njoin = true\n"
    (tmp_path / "rocketray.toml").write_text(f"[start]\n{settings}")
    assert "to join a cluster, a node needs its name" in run_here("start").err
    (tmp_path / "rocketray.toml").write_text("[start]\nqueues-per-process = 0\n")
    wrong = run_here("start")
    assert wrong.code == 2
    assert "queues per process are 0; give a number from 1 to 1024" in wrong.err


def every_option() -> Iterator[tuple[list[str], TyperCommand, TyperOption]]:
    below: list[tuple[list[str], Any]] = [([], command_tree())]
    while below:
        path, command = below.pop()
        children = getattr(command, "commands", {})
        below += [([*path, name], child) for name, child in children.items()]
        for parameter in [] if children else command.params:
            name = parameter.opts[0].removeprefix("--")
            if isinstance(parameter, TyperOption) and name not in ("data", "json", "help"):
                yield path, command, parameter


@pytest.mark.parametrize("value", [5, -1, 1.5, True, "x", "", ["x"], [5], []], ids=repr)
def test_an_option_takes_a_value_of_the_file_or_says_what_is_wrong(value: object) -> None:
    taken = 0
    for path, command, parameter in every_option():
        table: dict[str, Any] = {parameter.opts[0].removeprefix("--"): value}
        for name in reversed(path):
            table = {name: table}
        with typer.Context(command) as context, suppress(ConfigError, typer.BadParameter):
            given = option_defaults(command_tree(), SettingsFile(FILE, commands=table))
            for name in path:
                given = given[name]
            parameter.process_value(context, given[str(parameter.name)])
            taken += 1
    assert taken


def test_a_wrong_file_ends_every_command_but_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rocketray.toml").write_text('[strat]\nack = "disk"\n')
    done = run_here("topics", "list")
    assert (done.code, done.out) == (1, "")
    assert "there is no command for [strat]; did you mean [start]?" in done.err
    assert run_here("--help").code == 0
    (tmp_path / "rocketray.toml").write_text('[start]\nakc = "disk"\n')
    assert "did you mean ack?" in run_here("doctor").err, "it checks all tables"
