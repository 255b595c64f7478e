"""Which agents' filters may leave out messages that are wanted: told when an app starts.

A filter with a typo looks like a topic without messages. What is known of filters before they are
used, from their text and from the newest messages of their topics, is in actors/filtering/filter_advice.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketray.errors import StreamError
from rocketray.topology.connection import Connection
from rocketray.topology.values.topic import Topic

__all__ = ["agent_doubts", "warn_of_doubts"]

logger = logging.getLogger(__name__)

_EVERYTHING = ("", "*")


def agent_doubts(connection: Connection, agents: Iterable[Any]) -> list[str]:
    """A line for each reason why the filter of one of *agents* may leave out what is wanted.

    Reads files, so it may block.
    """
    lines: list[str] = []
    for agent in agents:
        membership, channel = agent.membership, agent.channel
        if membership is None or not isinstance(channel, Topic):
            continue
        subscription = membership.subscription
        if subscription.expression_type == "CLASS" or subscription.expression in _EVERYTHING:
            continue  # nothing is known of a predicate, and "*" leaves nothing out
        from rocketray.actors.filtering.filter_advice import doubts  # noqa: PLC0415 - imports NumPy

        topics = channel.matching(connection.topics() if channel.pattern else {})
        found = doubts(Path(connection.data), topics, subscription)
        lines.extend(f"agent {agent.name}: {line}" for line in found)
    return lines


def warn_of_doubts(connection: Connection, agents: Iterable[Any]) -> None:
    """Log :func:`agent_doubts`; an app goes on where files cannot be looked at."""
    try:
        for line in agent_doubts(connection, agents):
            logger.warning("%s", line)
    except (StreamError, OSError) as error:
        logger.debug("the filters of agents were not compared with messages: %s", error)
