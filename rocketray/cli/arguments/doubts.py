"""Warnings about a filter on stderr, before a command uses it: a typo looks like an empty topic."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rocketray.cli.terminal.output import progress

if TYPE_CHECKING:
    from rocketray.filters.subscription import Subscription

__all__ = ["tell_doubts"]


def tell_doubts(data: Path, topics: Iterable[str], subscription: Subscription) -> None:
    """Warn if *subscription* probably rejects messages of *topics* that are wanted."""
    from rocketray.actors.filtering.filter_advice import doubts  # noqa: PLC0415 - imports NumPy

    for line in doubts(data, topics, subscription):
        progress(f"warning: {line}")
