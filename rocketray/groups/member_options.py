"""The options with which a member joins a consumer group."""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Literal, TypedDict, get_args

from rocketray.base.meant import refuse_unknown
from rocketray.base.message_time import checked_node_ms
from rocketray.base.names import check_group, check_topic, is_retry_topic
from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription

from .assignment import Strategy, check_strategy
from .heartbeat import AppInstance

FetchCompression = Literal["lz4", "zstd"]
StartFrom = Literal["earliest", "latest"]
_CLIENT_ID_MAX = 255
_POLL_MAX_S = 1e9  # some 31 years: the kernel's nanoseconds are 64 bits
_NOT_IN_HOSTS = re.compile(r"[^a-zA-Z0-9._-]")
_UNIQUE_BYTES = 4  # tells apart members of one process, and of a reused process id


class MemberOptions(TypedDict, total=False):
    """The options of a member; the defaults are RocketMQ's unless stated here.

    ``client_id``: the member's name in the group, by default :func:`new_client_id`.
    ``start``: where to begin in queues in which the group has no offset yet: "earliest", the
    default, "latest", or a time in milliseconds since 1970, which stands for the first message that
    was stored then or later.
    ``strategy``: how the queues are assigned; members of one ``together`` read the same queue
    numbers instead.
    ``broadcast``: each member gets all messages, and keeps its offsets under its client id in
    ``offsets_directory``, by default DATA/broadcast.
    ``fetch_compression``: how messages from another machine are compressed: "lz4", "zstd", or None,
    the default.
    """

    client_id: str | None
    start: StartFrom | int
    strategy: Strategy
    together: AppInstance | None
    broadcast: bool
    offsets_directory: Path | str | None
    fetch_compression: FetchCompression | None


def check_member(
    group: str, topic: str, subscription: Subscription, options: MemberOptions
) -> None:
    """Check the arguments of a member before it joins.

    Raises:
        InvalidNameError: the group's or the topic's name is invalid.
        ConfigError: an argument has the wrong type, or an option is unknown; or the group's retry
            topic is read with a filter.
        FilterError: the subscription is malformed.
    """
    check_group(group)
    check_topic(topic)
    if not isinstance(subscription, Subscription):
        raise ConfigError(
            f"the subscription is {subscription!r:.60}; make one with rr.Subscription.tags('pay'), "
            "rr.Subscription.sql('amount > 100') or rr.Subscription.where(…), or give the name of "
            "a filter: rr.FilterName('large')"
        )
    subscription.check_text()
    check_filter_of(group, topic, subscription)
    _check_options(options)


def _check_options(options: MemberOptions) -> None:
    """Raise :class:`ConfigError` for an unknown option, a wrong value, or two that do not agree."""
    names = sorted(MemberOptions.__annotations__)
    refuse_unknown("a member has no option", options, names, f"there are {', '.join(names)}")
    start = options.get("start", "earliest")
    is_time = isinstance(start, int) and not isinstance(start, bool) and start >= 0
    if not is_time and start not in get_args(StartFrom):
        raise ConfigError(
            f"start is {start!r:.60}; give 'earliest', 'latest', or milliseconds since 1970"
        )
    if isinstance(start, int):
        checked_node_ms("start", start)
    if client_id := options.get("client_id"):
        check_client_id(client_id)
    check_compression(options.get("fetch_compression"))
    strategy, together = options.get("strategy", "averagely"), options.get("together")
    is_divided = check_strategy(strategy) != "averagely"
    if together is not None and is_divided:
        raise ConfigError(
            f"app {together.app!r} needs one assignment for all its topics, so its groups cannot "
            f"use strategy {strategy!r}; leave it out"
        )
    if options.get("broadcast") and (client_id is None or together or is_divided):
        raise ConfigError(
            "a member of a broadcast group needs a client_id, under which its offsets are stored, "
            "and neither strategy nor together: it gets all queues"
        )


def check_filter_of(group: str, topic: str, subscription: Subscription) -> None:
    """Raise :class:`ConfigError` for a filter on the group's retry topic, which it reads without.

    Its messages were matched before, by the filter of that time. One that another filter rejected
    now would never be handled, and never become a dead letter.
    """
    if is_retry_topic(topic, group) and not subscription.matches_all:
        raise ConfigError(
            f"topic {topic!r} has the messages on which group {group!r} failed, and a filter would "
            f"drop some of them: leave out {subscription}; the group's filter applies to the topics "
            "from which it read them"
        )


def check_poll(timeout_s: float, max_messages: int) -> None:
    """Raise :class:`ConfigError` unless a poll can take these arguments."""
    if not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s <= _POLL_MAX_S:
        raise ConfigError(
            f"timeout_s is {timeout_s!r:.60}; give the seconds that a poll waits for messages, "
            "from 0, which does not wait, to 1e9: poll(1.0)"
        )
    if not isinstance(max_messages, int) or max_messages < 1:
        raise ConfigError(f"max_messages is {max_messages!r:.60}; give a whole number from 1")


def check_compression(compression: FetchCompression | None) -> FetchCompression | None:
    """Return *compression*; raise :class:`ConfigError` if there is none of that name."""
    if compression not in (None, *get_args(FetchCompression)):
        raise ConfigError(f"fetch_compression is {compression!r:.60}; give 'lz4', 'zstd' or None")
    return compression


def new_client_id(unit: str = "") -> str:
    """Return a new member name: ``HOST@PID#1f0c29ab``, and ``@UNIT`` if a unit is given.

    The form is RocketMQ's ``IP@PID#TIME@UNIT``; no two members have the same name at any time.
    """
    begin = client_ids_of(socket.gethostname(), os.getpid())
    name = f"{begin}{secrets.token_hex(_UNIQUE_BYTES)}"
    return check_client_id(f"{name}@{unit}" if unit else name)


def client_ids_of(machine: str, pid: int) -> str:
    """Return what the names of the members of a process begin with: ``HOST@PID#``."""
    return f"{_NOT_IN_HOSTS.sub('-', machine)}@{pid}#"


def check_client_id(client_id: str) -> str:
    """Return *client_id*; raise :class:`ConfigError` if it is not valid as a member's name."""
    if not isinstance(client_id, str):
        raise ConfigError(f"client_id is {client_id!r:.60}; give a string, or leave it out")
    if not (0 < len(client_id) <= _CLIENT_ID_MAX and client_id.isprintable()):
        raise ConfigError(
            f"client id {client_id[:40]!r}: a member's name has 1 to {_CLIENT_ID_MAX} printable "
            "characters"
        )
    return client_id
