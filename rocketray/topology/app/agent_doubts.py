"""Warnings at the start of an app: filters of agents that may reject wanted messages.

A filter with a typo looks like a topic without messages. The checks, which use a filter's text and
the newest messages of its topics, are in actors/filtering/filter_advice.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketray.errors import StreamError
from rocketray.topology.connection import AppNode
from rocketray.topology.values.topic import Topic

__all__ = ["agent_doubts", "warn_of_doubts"]

logger = logging.getLogger(__name__)

_EVERYTHING = ("", "*")


def agent_doubts(connection: AppNode, agents: Iterable[Any]) -> list[str]:
    """Return a line for each reason why an agent's filter may reject wanted messages.

    Reads files, so it may block.
    """
    lines: list[str] = []
    for agent in agents:
        membership, channel = agent.membership, agent.channel
        if membership is None or not isinstance(channel, Topic):
            continue
        subscription = membership.subscription
        if subscription.expression_type == "CLASS" or subscription.expression in _EVERYTHING:
            continue  # a predicate cannot be checked, and "*" rejects nothing
        from rocketray.actors.filtering.filter_advice import doubts  # noqa: PLC0415 - imports NumPy

        topics = channel.matching(connection.topics.all() if channel.pattern else {})
        found = doubts(Path(connection.data), topics, subscription)
        lines.extend(f"agent {agent.name}: {line}" for line in found)
    return lines


def warn_of_doubts(connection: AppNode, agents: Iterable[Any]) -> None:
    """Log :func:`agent_doubts`; where files cannot be read, the app continues."""
    try:
        for line in agent_doubts(connection, agents):
            logger.warning("%s", line)
    except (StreamError, OSError) as error:
        logger.debug("the filters of agents were not compared with messages: %s", error)
