"""The pages of topics and of groups."""

from __future__ import annotations

from functools import partial
from typing import Any

from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group, check_topic
from rocketray.broker.filtering.filtered_lag import FilteredLag, total_lag
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.console.changes.group_forms import would_change
from rocketray.console.changes.send_form import FIELDS
from rocketray.console.changes.settings_form import SettingsForm, limits_of
from rocketray.errors import ConfigError
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient, lag_of, of_disks_there
from rocketray.services.health.day_totals import read_days
from rocketray.views.filter_records import named_filter_record
from rocketray.views.node_records import (
    days_record,
    described_topic,
    group_record,
    members_record,
    plan_record,
    progress_record,
    progress_rows,
    topic_record,
)

from .page_context import PageContext, Query, known, named, shards_of, unread_record
from .paged import paged

_FORM = ("dry", "topic", "queue", "goal", "at", "kind", "filter")


def topics(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return the topics with their messages, rates and groups; ``all`` adds the node's own."""
    node = of_disks_there(node)
    has_all = bool(query.get("all"))
    configs = [config for config in _topics(node) if has_all or not config.internal]
    shown = paged(query, configs, lambda config: [config.name])
    groups = node.groups.all()
    rows = []
    for config in shown.rows:
        shards, unknown = shards_of(node, config)
        # None where a shard does not answer; an empty list, of a topic without any, is no sum
        # either.
        count = shards and sum(shard.max_queue_offset - shard.min_queue_offset for shard in shards)
        rows.append(
            {
                **topic_record(config),
                "messages": 0 if shards == [] else count,
                "rate": context.samples.rate(config.name),
                "groups": sorted({group.group for group in groups if group.topic == config.name}),
                "unknown": unknown,
            }
        )
    return {"topics": rows, "paged": shown.record(), "all": has_all}


def _topics(node: NodeClient) -> list[TopicConfig]:
    return sorted(node.topics.all().values(), key=lambda config: config.name)


def topic(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return a topic and its queues, as ``topics describe``, and the groups that read it.

    ``unknownQueues`` are on disks that do not answer. ``send`` is the form of a message, ``sent``
    where one was stored; ``settings`` the form of the settings, with what it would change.
    """
    config = node.topics.get(named(query, "topic", check_topic))
    shards = of_disks_there(node).shard_statistics(config.name)
    known_queues = {shard.queue_id for shard in shards}
    record = described_topic(config, shards)
    record["stored"] = days_record(read_days(node, {config.name: config}), config.name)
    record["unknownQueues"] = [one for one in range(config.queues) if one not in known_queues]
    readers = [one for one in node.groups.all() if one.topic == config.name]
    groups_of = [_group_row(node, one, context) for one in readers]
    samples = context.samples
    record |= {"rate": samples.rate(config.name), "hour": samples.stored_series(config.name)}
    record["groups"] = groups_of
    record |= {"isOpen": not config.internal, "sent": context.sent(query.get("sent", ""))}
    record["send"] = {
        "texts": dict.fromkeys(FIELDS, ""),
        "refused": {},
        "ack": config.default_ack,
        "isChecked": False,
    }
    record["settings"] = _settings(node, config, query)
    return record | _filters(node, config.name)


def _settings(node: NodeClient, config: TopicConfig, query: Query) -> dict[str, Any]:
    """Return the settings in the form, and what these would change, if that is asked."""
    form = limits_of(config.retention) | {"permission": str(config.perm)}
    if query.get("dry") != "settings":
        return {"form": form, "would": None}
    asked = {name: query.get(name, "").strip() or text for name, text in form.items()}
    return {"form": asked, "would": SettingsForm.of(query).plan(node)}


def tail_form(node: NodeClient, query: Query) -> dict[str, Any]:
    """Return the topics to choose from, and the named filters of the chosen one."""
    names = [config.name for config in _topics(node) if not config.internal]
    chosen = query.get("topic", "")
    return {"topics": names, **(_filters(node, chosen) if chosen in names else {"filters": []})}


def groups(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return the groups as ``groups list``, each with its lag and that of the last hour.

    The retry topic of a group comes behind its topics.
    """
    found = sorted(node.groups.all(), key=lambda one: (one.group, _is_retry(one), one.topic))
    shown = paged(query, found, lambda one: [one.group, one.topic])
    rows = [_group_row(node, one, context) for one in shown.rows]
    return {"groups": rows, "paged": shown.record()}


def group(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return a group on each of its topics, with its queues as ``groups progress``.

    ``memberships`` of a topic are its members, as ``groups members``.
    ``plan`` of a topic is the progress of a change of its filter, as ``groups migrate``.
    ``change`` is the last one that the console made; ``moves`` and ``compared`` are what a form
    would change, as ``groups seek`` and ``groups migrate`` with ``--dry-run``.
    """
    name = named(query, "group", check_group)
    descriptions = [description for description in node.groups.all() if description.group == name]
    if not descriptions:
        raise ConfigError(f"there is no group {name!r}")
    rows = []
    for description in sorted(descriptions, key=lambda one: (_is_retry(one), one.topic)):
        queues, unknown = known(partial(_progress, node, description))
        progress = description.plan and node.groups.change_progress(name, description.topic)
        rows.append(
            {
                **_group_row(node, description, context),
                "queues": queues,
                "unknownQueues": unknown,
                "plan": progress and plan_record(progress),
                "memberships": members_record(description),
            }
        )
    change = context.change_of(name)
    return {
        "group": name,
        "topics": rows,
        "change": change and change.record(),
        "form": {key: query.get(key, "") for key in _FORM},
        **would_change(node, query),
    }


def _filters(node: NodeClient, name: str) -> dict[str, Any]:
    """Return the named filters of a topic, as ``filter list``."""
    found, unknown = known(partial(node.named_filters.all, name))
    uses = node.named_filters.uses(name) if found else []
    records = [
        {
            **named_filter_record(one, [each for each in uses if each.name == one.name]),
            "text": one.text,
        }
        for one in found or ()
    ]
    return {"filters": records, "unknownFilters": unknown}


def _group_row(node: NodeClient, group: GroupDescription, context: PageContext) -> dict[str, Any]:
    lag, unknown = known(partial(_lag_of, node, group))
    place, samples = (group.group, group.topic), context.samples
    return {
        **group_record(group),
        "subscribed": str(group.subscription),
        "changing": None if group.plan is None else str(group.plan.new),
        "switched": group.plan is not None
        and group.plan.is_switching
        and bool(group.plan.switches),
        "lag": lag and lag.count,
        "diff": lag and lag.diff,
        "exactness": lag and lag.exactness.value,
        "unknown": unknown,
        "held": {str(queue): str(failing) for queue, failing in sorted(group.failing.items())},
        "isRetry": _is_retry(group),
        "isBroadcast": group.is_broadcast,
        # A group's offsets count messages only if its filter rejects none.
        "countsMessages": group.subscription.matches_all,
        "rate": samples.finish_rate(*place),
        "hour": samples.series(*place),
        "finishedHour": samples.finished_series(*place),
        **unread_record(group, lag, node.clock_ms(), samples.growth_of(*place)),
    }


def _is_retry(group: GroupDescription) -> bool:
    return group.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def _lag_of(node: NodeClient, one: GroupDescription) -> FilteredLag:
    if one.is_broadcast:
        raise ConfigError("its members keep their own offsets")
    return total_lag(lag_of(node, one).values())


def _progress(node: NodeClient, one: GroupDescription) -> list[dict[str, Any]]:
    return [progress_record(row, one.counters.errors) for row in progress_rows(node, one)]
