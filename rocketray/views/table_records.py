"""Tables of apps, each known by its changelog: their names, their values, and records of both."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from rocketray.base.meant import meant
from rocketray.errors import ConfigError
from rocketray.topology.values.wire import topic_name

from .json_text import is_json
from .message_records import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketray.broker.shards.shard_api import ShardStatistics
    from rocketray.broker.topics.catalog import TopicConfig
    from rocketray.topology.tables.lookup import TableValue

CHANGELOG = "-changelog"
"""The end of a changelog's name. The app's id, a dash and the table's name are before it."""
_NAMED_MAX = 10  # tables in an error


def changelogs_in(topics: Mapping[str, TopicConfig]) -> dict[str, TopicConfig]:
    """Return the changelogs among *topics* by their tables, as ``words-counts``, in order."""
    return {
        name.removesuffix(CHANGELOG): config
        for name, config in sorted(topics.items())
        if config.retention.compacts and name.endswith(CHANGELOG)
    }


def table_named(tables: Mapping[str, TopicConfig], name: str) -> str:
    """Return which of *tables* is meant by *name*, which may leave out the app's id.

    Raises:
        ConfigError: none is, or those of several apps are; the message names them.
    """
    stored = topic_name(name)
    found = [each for each in tables if each == stored or each.endswith(f"-{stored}")]
    if stored in found or len(found) == 1:
        return stored if stored in found else found[0]
    if found:
        raise ConfigError(f"table {name!r} may be {' or '.join(found)}; name the app, too")
    near = meant(stored, tables, most=3) or [*tables][:_NAMED_MAX]
    instead = f", but {', '.join(near)}" if near else ""
    raise ConfigError(
        f"there is no table {name!r}{instead}; a table is there from "
        "its first committed change on, under its app and its name; see: rocketray tables list"
    )


def table_record(
    table: str, config: TopicConfig, shards: Sequence[ShardStatistics] | None
) -> dict[str, Any]:
    """Return a table, with the messages in its changelog and their bytes.

    A key has one message or more. Both are None where the *shards* are not known.
    """
    changes = size = None
    if shards is not None:
        changes = sum(one.max_queue_offset - one.min_queue_offset for one in shards)
        size = sum(one.max_physical_offset - one.min_physical_offset for one in shards)
    counts = {"queues": config.queues, "changes": changes, "bytes": size}
    return {"table": table, "topic": config.name, **counts}


def value_record(table: str, found: TableValue) -> dict[str, Any]:
    """Return a value of a table, with its place in the changelog and the time of the change.

    ``key`` is null if it is no text, ``value`` if it is not JSON; ``body`` is the value in base64.
    ``window`` is the first and the last second of its window.
    """
    change = found.change
    return {
        "table": table,
        "key": _parsed(found.key, _text(found.key)),
        "window": found.window,
        "value": _parsed(found.value, None),
        "body": base64.b64encode(found.value).decode("ascii"),
        "topic": change.topic,
        "queueId": change.queue_id,
        "queueOffset": change.queue_offset,
        "bornTimestamp": change.born_timestamp_ms,
    }


def shown_json(data: bytes) -> str:
    """Return a value or a key in one line: as JSON if it is JSON, else as the text it is."""
    text = data.decode(errors="replace")
    if _parsed(data, ...) is ...:
        return printable(text)
    # Blanks that are no spaces are between the parts; all else that is not printable is in strings.
    flat = text.translate(dict.fromkeys(map(ord, "\t\n\r"), " "))
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in flat)


def _parsed(data: bytes, otherwise: Any) -> Any:
    """Return the value of JSON in UTF-8; *otherwise* if it is none."""
    try:
        text = data.decode()
        return json.loads(text) if is_json(text) else otherwise
    except ValueError:  # also a number with thousands of digits
        return otherwise


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
