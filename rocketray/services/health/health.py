"""Asking a node what troubles are decided from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from rocketray.errors import StreamError
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.admin.dead_letters import letter_boxes

from .node_readings import read_node
from .troubles import HealthReadings

_T = TypeVar("_T")


def read_health(
    node: NodeClient, growth: Mapping[tuple[str, str], float] | None = None
) -> HealthReadings:
    """Ask *node*, and for its problems where this client can; *growth* of lags was measured before.

    Raises:
        ShardUnavailableError: its coordinator does not answer.
    """
    unknown: dict[str, str] = {}
    problems: Callable[[], list[str]] | None = getattr(node, "problems", None)

    def asked(part: str, question: Callable[[], _T]) -> _T | None:
        try:
            return question()
        except (StreamError, OSError) as error:
            unknown[part] = str(error)
            return None

    return HealthReadings(
        read_node(node),
        None if problems is None else asked("problems", problems),
        asked("dead letters", partial(letter_boxes, node)),
        unknown,
        growth or {},
    )
