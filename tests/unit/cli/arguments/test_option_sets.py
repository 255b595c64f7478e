"""Dataclasses as sets of options: what typer sees of them, and what a command gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.main import get_command

from rocketray.base.option import option
from rocketray.cli.arguments.option_sets import spread

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A name.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Say nothing.")]


@dataclass(frozen=True, slots=True)
class Limits:
    most: Annotated[int | None, typer.Option("--max", metavar="N", help="The most.")] = None
    paths: tuple[str, ...] | None = option(None, "A path; may be repeated.", "PATH")
    port: int | None = option(None, "A port.", "PORT", min=1, max=65535)
    rate: int = option(1 << 20, "How much is read a second.", "BYTES", written="rate")
    inner: int = 7


COMMAND_SAW: list[tuple[str, Limits, bool]] = []


def command(name: NameArgument, *, limits: Limits, quiet: QuietOption = False) -> None:
    COMMAND_SAW.append((name, limits, quiet))


def run(*arguments: str) -> tuple[str, Limits, bool]:
    app = typer.Typer()
    app.command()(spread(command))
    get_command(app)(arguments, standalone_mode=False)
    return COMMAND_SAW.pop()


def test_a_command_gets_one_value_of_the_options_in_a_set() -> None:
    assert run("a") == ("a", Limits(), False)
    given = ("--max", "3", "--paths", "m", "--paths", "n", "--rate", "2MiB", "--quiet")
    assert run("a", *given) == ("a", Limits(3, ("m", "n"), rate=2 << 20), True)


def test_typer_sees_the_options_where_the_set_stands() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(spread(command))
    options = [parameter.opts[0] for parameter in get_command(app).params]
    assert options == ["name", "--max", "--paths", "--port", "--rate", "--quiet"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--port", "0"), "greater than or equal to 1"),
        (("--rate", "fast"), "'fast' is not a size"),
        (("--inner", "1"), "No such option"),
    ],
)
def test_a_wrong_value_is_refused(given: tuple[str, ...], says: str) -> None:
    with pytest.raises(Exception, match=says):
        run("a", *given)


def test_a_command_without_a_set_is_left_as_it_is() -> None:
    assert spread(run) is run
