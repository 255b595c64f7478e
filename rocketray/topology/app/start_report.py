"""What an app logs of its start: its node, its agents and sinks, where to look."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rocketray.errors import NodeElsewhereError, StreamError
from rocketray.topology.connection import AppNode
from rocketray.topology.values.topic import Topic

from .agent import agent_doubts
from .app_log import AppLog

logger = logging.getLogger(__name__)


def report_places(app: Any, log: AppLog, connection: AppNode) -> None:
    """Log to a file in the data directory from now on, and say where what is."""
    app_id = app.conf.id
    try:
        data = connection.files("logging to a file")
    except NodeElsewhereError as error:
        logger.info("app %s logs to no file: %s", app_id, error)
        return
    logger.info("app %s uses the node on %s", app_id, data)
    file = log.begin(data, app_id)
    if file is not None:
        logger.info(
            "app %s logs to %s; read it with: rocketray logs %s --data %s; see its groups with: "
            "rocketray status --data %s",
            *(app_id, file, app_id, data, data),
        )


def report_start(app: Any) -> None:
    """Log the agents with groups and filters, and which keep order only because of tables."""
    members = [
        (agent.name, agent.channel, agent.membership)
        for agent in app.agents.values()
        if isinstance(agent.channel, Topic) and agent.membership is not None
    ]
    for name, channel, member in members:
        logger.info(
            "agent %s of app %s is in group %s: topic %s, %s",
            *(name, app.conf.id, member.group, _topics(channel), app.fetcher.filter_of(member)),
        )
    for sink in app.sinks.values():
        logger.info(
            "sink %s of app %s: topic %s, %s",
            *(sink.name, app.conf.id, sink.topic, sink.chosen_filter()),
        )
    groups = ", ".join(f"{name} (group {member.group})" for name, _, member in members)
    # Sinks read later: Spark takes seconds to start, and a minute on a busy machine.
    sinks = f"its sinks start on Spark: {', '.join(app.sinks)}" if app.sinks else ""
    if sinks and not groups:
        logger.info("app %s has no agents; %s", app.conf.id, sinks)
    else:
        rest = sinks and f"; {sinks}"
        logger.info("app %s is ready; agents: %s%s", app.conf.id, groups or "none", rest)
    names = sorted(
        name
        for name, _, member in members
        if member.failures.ordered is None and not member.is_broadcast
    )
    if app.tables and names:
        logger.info(
            "app %s has tables (%s), so these agents keep the order of each queue: %s; a message "
            "that fails holds its queue; to turn that off, give an agent ordered=False",
            *(app.conf.id, ", ".join(sorted(app.tables)), ", ".join(names)),
        )


async def warn_of_doubts(app: Any) -> None:
    """Log which filters look like mistakes, while agents already run."""
    agents = list(app.agents.values())
    try:
        for line in await asyncio.to_thread(agent_doubts, await app.connect(), agents):
            logger.warning("%s", line)
    except (StreamError, OSError) as error:
        # Advice only: the agents run whatever it would have found.
        logger.debug("the filters of agents were not compared with messages: %s", error)


def _topics(channel: Topic) -> str:
    return str(channel.pattern.pattern) if channel.pattern else ",".join(channel.topics)
