"""What each page shows: one record, as its ``.json`` address returns it.

A function here asks the node and returns plain values, in the forms that the commands print with
``--json``. What does not answer has the key ``unknown`` with the reason, and None for its numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from rocketray import __version__
from rocketray.actors.admin.letters_there import letters_there
from rocketray.actors.api.node_client import NodeClient, lag_of, of_disks_there
from rocketray.actors.explaining.inquiry import inquire
from rocketray.actors.filtering.filtered_lag import Exactness, FilteredLag
from rocketray.actors.groups.group_descriptions import GroupDescription
from rocketray.console.facts.process_table import processes_of
from rocketray.console.facts.samples import Samples
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group, check_topic
from rocketray.views.filter_records import named_filter_record
from rocketray.views.group_records import group_record, progress_record, progress_rows
from rocketray.views.json_fields import json_fields
from rocketray.views.lookups import found_by_id, found_by_unique_key
from rocketray.views.message_records import half_record, letter_record, to_json
from rocketray.views.topic_records import described_topic, topic_record

__all__ = ["EXPRESSION_MAX", "PAGES", "PageContext", "letters_filter", "tail_form"]

_T = TypeVar("_T")
_Query = Mapping[str, str]
EXPRESSION_MAX = 4096
"""The characters of a filter, or of another field of a form, at most."""
_MESSAGES_MAX = 32
_LETTERS_MAX = 200
_HALVES_MAX = 100
_GROUPS_EXPLAINED_MAX = 20


@dataclass(slots=True)
class PageContext:
    """What pages need beside the node: its directory, the samples, and the hosts of apps."""

    data: Path
    samples: Samples
    host_records: Callable[[NodeClient], list[dict[str, Any]]] = lambda _: []
    jobs: Mapping[str, Any] = field(default_factory=dict)


def topics(node: NodeClient, query: _Query, context: PageContext) -> dict[str, Any]:
    """Return the topics with their messages, rates and groups; ``all`` adds the node's own."""
    node = of_disks_there(node)
    configs = sorted(node.topics.all().values(), key=lambda one: one.name)
    shown = [one for one in configs if query.get("all") or not one.internal]
    groups = node.groups.all()
    rows = []
    for config in shown:
        shards, unknown = _known(partial(node.shard_statistics, config.name))
        if shards is not None and len(shards) < config.queues:
            shards, unknown = None, "the machine of a disk does not answer"
        count = shards and sum(one.max_queue_offset - one.min_queue_offset for one in shards)
        rows.append(
            {
                **topic_record(config),
                "messages": 0 if shards == [] else count,
                "rate": context.samples.rate(config.name),
                "groups": sorted({one.group for one in groups if one.topic == config.name}),
                "unknown": unknown,
            }
        )
    return {"topics": rows}


def topic(node: NodeClient, query: _Query, context: PageContext) -> dict[str, Any]:
    """Return a topic and its queues, as ``topics describe``, and the groups that read it."""
    config = node.topics.get(_named(query, "topic", check_topic))
    record = described_topic(config, of_disks_there(node).shard_statistics(config.name))
    readers = [one for one in node.groups.all() if one.topic == config.name]
    groups_of = [_group_row(node, one, context) for one in readers]
    record |= {"rate": context.samples.rate(config.name), "groups": groups_of}
    return record | _filters(node, config.name)


def tail_form(node: NodeClient, query: _Query, context: PageContext) -> dict[str, Any]:
    """Return the topics to choose from, and the named filters of the chosen one."""
    names = [row["topic"] for row in topics(node, {}, context)["topics"]]
    chosen = query.get("topic", "")
    return {"topics": names, **(_filters(node, chosen) if chosen in names else {"filters": []})}


def _filters(node: NodeClient, name: str) -> dict[str, Any]:
    """Return the named filters of a topic, as ``filter list``."""
    found, unknown = _known(partial(node.named_filters.all, name))
    uses = node.named_filters.uses(name) if found else []
    records = [
        {
            **named_filter_record(one, [each for each in uses if each.name == one.name]),
            "text": one.text,
        }
        for one in found or ()
    ]
    return {"filters": records, "unknownFilters": unknown}


def groups(node: NodeClient, _query: _Query, context: PageContext) -> dict[str, Any]:
    """Return the groups as ``groups list``, each with its lag and that of the last hour."""
    found = sorted(node.groups.all(), key=lambda one: (one.group, one.topic))
    return {"groups": [_group_row(node, one, context) for one in found]}


def group(node: NodeClient, query: _Query, context: PageContext) -> dict[str, Any]:
    """Return a group on each of its topics, with its queues as ``groups progress``."""
    name = _named(query, "group", check_group)
    found = [one for one in node.groups.all() if one.group == name]
    if not found:
        raise ConfigError(f"there is no group {name!r}")
    rows = []
    for one in sorted(found, key=lambda one: one.topic):
        queues, unknown = _known(partial(_progress, node, one))
        rows.append({**_group_row(node, one, context), "queues": queues, "unknownQueues": unknown})
    return {"group": name, "topics": rows}


def message(node: NodeClient, query: _Query, _context: PageContext) -> dict[str, Any]:
    """Return the messages with an id, a key or a place, and why each group got it or not."""
    names = sorted(one.name for one in node.topics.all().values() if not one.internal)
    by, value = query.get("by", "key"), query.get("value", "").strip()
    record: dict[str, Any] = {"topics": names, "topic": query.get("topic", ""), "by": by}
    record |= {"value": value, "messages": None, "explanations": []}
    if not value:
        return record
    name = _named(query, "topic", check_topic)
    node.topics.get(name)
    found = _look_up(of_disks_there(node), name, by, value[:EXPRESSION_MAX])
    record["messages"] = [to_json(one) for one in found]
    if len(found) == 1:
        readers = sorted({one.group for one in node.groups.all() if one.topic == name})
        for reader in readers[:_GROUPS_EXPLAINED_MAX]:
            ask = partial(inquire, node, found[0].offset_message_id, reader, name)
            told, unknown = _known(ask)
            record["explanations"].append(
                {"group": reader, **(told.to_json() if told else {}), "unknown": unknown}
            )
    return record


def letters(node: NodeClient, query: _Query, context: PageContext) -> dict[str, Any]:
    """Return the dead letters as ``dlq list``, and of one group as ``dlq show``."""
    boxes = [json_fields(box) for box in node.letters.boxes()]
    record: dict[str, Any] = {"boxes": boxes, "group": None, "letters": [], "filter": ""}
    record["would"] = None
    if query.get("group"):
        name = _named(query, "group", check_group)
        text = query.get("filter", "")[:EXPRESSION_MAX]
        found = letters_there(node.letters, name, letters_filter(text))
        if query.get("dry"):
            listed = list(found)
            record["would"] = sum(not done for _, done in listed)
            found = iter(listed)
        record |= {
            "group": name,
            "filter": text,
            "letters": [
                letter_record(one, is_redriven=done) for one, done in islice(found, _LETTERS_MAX)
            ],
            "max": _LETTERS_MAX,
        }
    return record | {"jobs": {name: job.record() for name, job in context.jobs.items()}}


def letters_filter(text: str) -> Subscription:
    """Return the filter of letters; all of them for an empty text.

    Raises:
        FilterSyntaxError: it does not parse.
    """
    subscription = Subscription.sql(text) if text.strip() else Subscription.tags("*")
    subscription.check_text()
    return subscription


def waiting(node: NodeClient, _query: _Query, _context: PageContext) -> dict[str, Any]:
    """Return the delayed messages of each disk, and the transactions that are not decided."""
    disks: Sequence[str] = ["", *sorted(set(node.disks.homes()) - {""})]
    delayed = []
    for disk in disks:
        count, unknown = _known(partial(node.delays.waiting, disk))
        delayed.append({"disk": disk, "waiting": count, "unknown": unknown})
    found = node.transactions.overview(_HALVES_MAX)
    return {
        "delayed": delayed,
        "transactions": [half_record(half) for half in found.halves],
        "undecided": found.undecided,
        "ended": json_fields(found.counts),
        "unknownDisks": list(found.unknown),
    }


def apps(node: NodeClient, _query: _Query, context: PageContext) -> dict[str, Any]:
    """Return the hosts of apps, with their agents and sinks, as ``status``."""
    hosts, unknown = _known(partial(context.host_records, node))
    living = sorted({one.group for one in node.groups.all() if one.members.keys() - one.unheard})
    return {"hosts": hosts, "unknown": unknown, "groupsWithMembers": living}


def node_page(node: NodeClient, _query: _Query, context: PageContext) -> dict[str, Any]:
    """Return the state of the node: its disk, its problems, and what is not on disk yet."""
    problems, unknown = _known(lambda: _health(node, "problems"))
    ages, unknown_ages = _known(lambda: _health(node, "unflushed"))
    usage = shutil.disk_usage(context.data)
    memory = _memory()
    processes, unknown_processes = _known(partial(processes_of, context.data))
    return {
        "release": __version__,
        "cluster": node.cluster,
        "data": str(context.data),
        "disk": {"total": usage.total, "free": usage.free},
        "memory": memory,
        "processes": processes,
        "unknownProcesses": unknown_processes,
        "problems": problems,
        "unknown": unknown,
        "unflushed": ages,
        "unknownAges": unknown_ages,
        "topics": len(node.topics.all()),
        "disks": sorted(name for name in node.disks.homes() if name),
    }


PAGES: Mapping[str, Callable[[NodeClient, _Query, PageContext], dict[str, Any]]] = {
    "topics": topics,
    "topic": topic,
    "groups": groups,
    "group": group,
    "message": message,
    "letters": letters,
    "waiting": waiting,
    "apps": apps,
    "node": node_page,
}
"""The pages by the path of their address."""


def _known(question: Callable[[], _T]) -> tuple[_T | None, str | None]:
    """Return the answer; or None and the reason why it is unknown."""
    try:
        return question(), None
    except (StreamError, OSError) as error:
        return None, str(error)


def _named(query: _Query, name: str, check: Callable[[str], str]) -> str:
    given = query.get(name, "")
    if not given:
        raise ConfigError(f"the address has no {name}: choose one on its page")
    return check(given)


def _group_row(node: NodeClient, one: GroupDescription, context: PageContext) -> dict[str, Any]:
    found, unknown = _known(partial(_lag_of, node, one))
    worst = sorted(
        {each.exactness.value for each in (found or {}).values()} - {Exactness.EXACT.value}
    )
    return {
        **group_record(one),
        "subscribed": str(one.subscription),
        "lag": None if found is None else sum(each.count for each in found.values()),
        "diff": None if found is None else sum(each.diff for each in found.values()),
        "exactness": worst[0] if worst else Exactness.EXACT.value,
        "unknown": unknown,
        "held": {str(queue): str(failing) for queue, failing in sorted(one.failing.items())},
        "isRetry": one.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)),
        "hour": context.samples.series(one.group, one.topic),
    }


def _lag_of(node: NodeClient, one: GroupDescription) -> dict[int, FilteredLag]:
    if one.is_broadcast:
        raise ConfigError("its members keep their own offsets")
    return lag_of(node, one)


def _progress(node: NodeClient, one: GroupDescription) -> list[dict[str, Any]]:
    return [progress_record(row, one.counters.errors) for row in progress_rows(node, one)]


def _look_up(node: NodeClient, topic_name: str, by: str, value: str) -> list[StoredMessage]:
    if by == "key":
        found = node.messages.query(topic_name, value, _MESSAGES_MAX)
        return [one for one in found if value in one.keys]
    if by == "id":
        return found_by_id(node, topic_name, value)
    if by == "unique":
        return found_by_unique_key(node, topic_name, value)
    queue, _, offset = value.partition("@")
    if by != "place" or not (_is_number(queue) and _is_number(offset)):
        raise ConfigError(f"{value[:40]!r} is not a place; write it as 0@17: queue 0, offset 17")
    stored = node.messages.at(topic_name, int(queue), int(offset))
    return [] if stored is None else [stored]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _health(node: NodeClient, what: str) -> Any:
    question = getattr(node, what, None)
    if question is None:
        raise ConfigError("this client of the node cannot ask for it")
    return question()


def _memory() -> dict[str, int] | None:
    """Return the machine's memory in bytes, total and available; None where it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (x.partition(":") for x in lines)
    }
    return {"total": found["MemTotal"], "available": found["MemAvailable"]}
