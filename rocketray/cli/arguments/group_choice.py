"""One group or all of them: the argument, and the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.errors import ConfigError

if TYPE_CHECKING:
    from rocketray.actors.groups.group_descriptions import GroupDescription

__all__ = ["OptionalGroupArgument", "chosen_groups"]

OptionalGroupArgument = Annotated[
    str | None, typer.Argument(metavar="GROUP", help="The group; without it, all groups.")
]


def chosen_groups(groups: Sequence[GroupDescription], group: str | None) -> list[GroupDescription]:
    """Return the entries of *group*, or of all if it is None, by name and topic."""
    found = sorted(groups, key=lambda each: (each.group, each.topic))
    chosen = [each for each in found if group is None or each.group == group]
    if group is not None and not chosen:
        from rocketray.actors.explaining.suggestions import like  # noqa: PLC0415 - imports the node

        meant = like(group, {each.group for each in groups})
        raise ConfigError(f"there is no group {group!r}{meant or '; see: rocketray groups list'}")
    return chosen
