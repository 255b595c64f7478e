"""A command whose help ends with examples: the last section of its docstring, a line each.

The section is ``Examples:``. Help prints it below the options: a terminal shows the end of a page.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_EXAMPLES = "\nExamples:\n"


class Verb(TyperCommand):
    """A command that takes the examples out of its help, and prints them at its end."""

    def __init__(self, **options: Any) -> None:
        text, _, examples = (options["help"] or "").partition(_EXAMPLES)
        super().__init__(**options | {"help": text, "epilog": examples})

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the examples as they are: one that is wrapped cannot be copied."""
        if self.epilog:
            with formatter.section("Examples"):
                indent = " " * formatter.current_indent
                for line in self.epilog.splitlines():
                    formatter.write(f"{indent}{line.strip()}\n")
