"""Asking a node what troubles are decided from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rocketray.errors import StreamError
from rocketray.messaging.api.node_client import NodeClient

from .node_readings import read_node
from .troubles import HealthReadings

_T = TypeVar("_T")


def read_health(
    node: NodeClient,
    problems: Callable[[], list[str]] | None,
    growth: Mapping[tuple[str, str], float],
) -> HealthReadings:
    """Ask *node*; *problems* returns its problems, None where this client cannot ask for them.

    Raises:
        ShardUnavailableError: its coordinator does not answer.
    """
    unknown: dict[str, str] = {}

    def asked(part: str, question: Callable[[], _T]) -> _T | None:
        try:
            return question()
        except (StreamError, OSError) as error:
            unknown[part] = str(error)
            return None

    return HealthReadings(
        read_node(node),
        asked("problems", problems) if problems is not None else None,
        asked("dead letters", node.letters.boxes),
        unknown,
        growth,
    )
