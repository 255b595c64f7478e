"""Checks of what a program declares with an app, at the declaration, where its line is known."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from faust.types.channels import ChannelT
from faust.utils.cron import secs_for_next
from mode.utils.times import want_seconds

from rocketray.errors import ConfigError


def check_app(app_id: Any, connection: Any) -> None:
    """Raise :class:`ConfigError` unless *app_id* is a name and *connection* can be one."""
    if not isinstance(app_id, str) or not app_id.strip():
        raise ConfigError(f"the id of an app is {app_id!r:.80}; give a name: rr.App('shop')")
    if isinstance(connection, str | Path):
        raise ConfigError(
            f"connection is {str(connection)!r:.100}; name a data directory with data=; "
            "connection= takes an open one, such as the broker of rocketray.testing"
        )


def check_agent_options(channel: Any, concurrency: Any) -> None:
    """Raise :class:`ConfigError` unless an agent can read *channel*, with *concurrency* handlers.

    A function as the channel is that of ``@app.agent`` without parentheses, which would be ignored.
    """
    if inspect.isroutine(channel):
        raise ConfigError(
            f"app.agent was given the function {channel.__name__!r:.80} in place of a topic; "
            "write: @app.agent(topic)"
        )
    if channel is not None and not isinstance(channel, str | ChannelT):
        raise ConfigError(
            f"an agent reads a topic, not {channel!r:.80}; write: @app.agent(topic); "
            "for several topics: app.topic('A', 'B')"
        )
    is_count = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not is_count or concurrency < 1:
        raise ConfigError(
            f"concurrency is {concurrency!r:.80}; give the number of an agent's handlers in each "
            "process, from 1"
        )


def check_handler(function: Any) -> None:
    """Raise :class:`ConfigError` unless *function* is an ``async def`` with one argument."""
    name = getattr(function, "__name__", repr(function))
    instead = f"write: async def {name}(stream)"
    if not _is_async(function):
        raise ConfigError(f"agent {name!r:.80} is not an async function; {instead}")
    try:
        inspect.signature(function).bind("stream")
    except TypeError as error:
        raise ConfigError(
            f"agent {name!r:.80} is called with one argument, its stream: {error}; {instead}"
        ) from None


def check_interval(interval: Any) -> None:
    """Raise :class:`ConfigError` unless *interval* is that of a timer: seconds or a timedelta."""
    try:
        seconds = want_seconds(interval)
    except ValueError:  # Faust reads a text as a rate: '10/m'
        seconds = None
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(
            f"the interval of a timer is {interval!r:.80}; give seconds, more than 0, "
            "or a timedelta: @app.timer(5.0)"
        )


def check_crontab(cron_format: Any) -> None:
    """Raise :class:`ConfigError` unless *cron_format* can be read."""
    try:
        secs_for_next(cron_format)
    except (AttributeError, TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise ConfigError(
            f"the time of a crontab is {cron_format!r:.80}: {reason}; give minute, hour, day of the "
            "month, month and day of the week: @app.crontab('30 18 * * *')"
        ) from None


def _is_async(function: Any) -> bool:
    return any(
        inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004  # an object's own
    )
