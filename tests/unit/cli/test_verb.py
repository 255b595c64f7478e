"""Examples end a page of help, behind the options."""

from __future__ import annotations

from typing import Any

import typer
from typer.main import get_command

from rocketray.cli.verb import Verb


def tree() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)

    @app.command(cls=Verb)
    def wash() -> None:
        """Wash the dishes."""

    @app.command(cls=Verb)
    def boil(litres: int) -> None:
        """Boil water.

        Examples:
            kettle boil 2
            kettle boil 17 %s
        """

    return app


def page(name: str) -> list[str]:
    command: Any = get_command(tree())
    with typer.Context(command.commands[name], info_name=name) as context:
        text: str = context.command.get_help(context)
        return text.splitlines()


def test_examples_stand_at_the_end_as_they_were_written_and_nowhere_else() -> None:
    lines = page("boil")
    assert lines[-3:] == ["Examples:", "  kettle boil 2", "  kettle boil 17 %s"]
    assert lines[-4] == ""
    assert lines.count("Examples:") == 1


def test_without_examples_there_is_no_heading() -> None:
    assert "Examples:" not in page("wash")
