"""Options of commands that the library declares: fields of a dataclass, with help and limits.

A field that :func:`option` makes is an option of each command that takes the dataclass, and has its
name: ``fetch_port`` is ``--fetch-port`` (rocketray/cli/arguments/option_sets.py).
"""

from __future__ import annotations

from dataclasses import Field, field
from typing import Any, Literal, NamedTuple


class Option(NamedTuple):
    """What a command says of an option, and the values that it takes.

    ``metavar`` stands for a value in the help. ``written`` is the notation of a value that users do
    not write as Python does: "rate" as 1MiB, "queues" as a number or a word. ``is_of_cluster`` says
    that a disk which joins a cluster takes the cluster's value.
    """

    help: str
    metavar: str | None = None
    min: int | None = None
    max: int | None = None
    written: Literal["rate", "queues"] | None = None
    is_of_cluster: bool = False


def option(default: Any, help_text: str, metavar: str | None = None, **more: Any) -> Any:
    """Return a field of a dataclass that is an :class:`Option`; *more* are fields of that."""
    return field(default=default, metadata={"option": Option(help_text, metavar, **more)})


def option_of(declared: Field[Any]) -> Option | None:
    """Return what :func:`option` said of a field; None for any other."""
    return declared.metadata.get("option")
