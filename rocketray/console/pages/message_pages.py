"""The pages of messages and of dead letters."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from rocketray.base.json_fields import json_fields
from rocketray.base.names import check_group, check_topic
from rocketray.console.changes.form_fields import is_number, letters_filter
from rocketray.errors import ConfigError
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient, of_disks_there
from rocketray.services.admin.dead_letter_calls import letters_by_calls
from rocketray.services.explaining.inquiry import inquire
from rocketray.views.lookups import found_by_id, found_by_unique_key
from rocketray.views.message_links import TRACE_ID, send_again, trace_id_of
from rocketray.views.message_records import letter_record, to_json

from .page_context import PageContext, Query, known, named
from .tail_stream import shown_json

_MESSAGES_MAX = 32  # each with its whole body
_JSON_MAX_BYTES = 64 * 1024  # of a body in lines; a larger one is shown as it is
_LETTERS_MAX = 200
_GROUPS_EXPLAINED_MAX = 20


def message(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return the messages with an id, a key or a place, and why each group got it or not.

    ``copies`` are the commands that send them again, ``traces`` the ids of their traces, and
    ``shown`` the bodies that are JSON in lines. Queues on ``unknownDisks``, which do not answer,
    are left out.
    """
    names = sorted(config.name for config in node.topics.all().values() if not config.internal)
    by, value = query.get("by", "key"), query.get("value", "").strip()
    record: dict[str, Any] = {"topics": names, "topic": query.get("topic", ""), "by": by}
    record |= {"value": value, "messages": None, "copies": [], "traces": [], "explanations": []}
    record |= {"unknownDisks": [], "shown": []}
    if not value:
        return record
    name = named(query, "topic", check_topic)
    node.topics.get(name)
    answering = of_disks_there(node)
    homes = node.disks.homes() if answering.away else {}
    record["unknownDisks"] = sorted(homes[disk].uuid for disk in answering.away)
    messages = _look_up(answering, name, by, value)
    record["messages"] = [to_json(stored) for stored in messages]
    record["copies"] = [json_fields(send_again(stored)) for stored in messages]
    record["shown"] = [shown_json(stored.body, _JSON_MAX_BYTES) for stored in messages]
    record["traces"] = [_trace(stored, context.trace_url) for stored in messages]
    if len(messages) == 1:
        readers = sorted({group.group for group in node.groups.all() if group.topic == name})
        # Each reads the message and runs the group's filter on it.
        for reader in readers[:_GROUPS_EXPLAINED_MAX]:
            ask = partial(inquire, node, messages[0].offset_message_id, reader, name)
            told, unknown = known(ask)
            record["explanations"].append(
                {"group": reader, **(told.to_json() if told else {}), "unknown": unknown}
            )
    return record


def letters(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return the dead letters as ``dlq list``, and of one group as ``dlq show``."""
    boxes = [json_fields(box) for box in node.letters.boxes()]
    record: dict[str, Any] = {"boxes": boxes, "group": None, "letters": [], "filter": ""}
    record["would"] = None
    if query.get("group"):
        name = named(query, "group", check_group)
        text = query.get("filter", "")
        listed = letters_by_calls(node.letters, name, letters_filter(text))
        if query.get("dry"):
            every = [*listed]
            record["would"] = sum(not done for _, done in every)
            listed = iter(every)
        record |= {
            "group": name,
            "filter": text,
            "letters": [
                letter_record(letter, is_redriven=done)
                for letter, done in islice(listed, _LETTERS_MAX)
            ],
            "max": _LETTERS_MAX,
        }
    return record | {"jobs": {name: job.record() for name, job in context.jobs.items()}}


def _look_up(node: NodeClient, topic_name: str, by: str, value: str) -> list[StoredMessage]:
    if by == "key":
        found = node.messages.query(topic_name, value, _MESSAGES_MAX)
        return [one for one in found if one.has_key(value)]
    if by == "id":
        return found_by_id(node, topic_name, value)
    if by == "unique":
        return found_by_unique_key(node, topic_name, value)
    queue, _, offset = value.partition("@")
    if by != "place" or not (is_number(queue) and is_number(offset)):
        raise ConfigError(f"{value[:40]!r} is not a place; write it as 0@17: queue 0, offset 17")
    stored = node.messages.at(topic_name, int(queue), int(offset))
    return [] if stored is None else [stored]


def _trace(stored: StoredMessage, template: str | None) -> dict[str, str | None] | None:
    trace_id = trace_id_of(stored.properties)
    if trace_id is None:
        return None
    url = None if template is None else template.replace(TRACE_ID, trace_id)
    return {"traceId": trace_id, "url": url}
