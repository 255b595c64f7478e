"""Changes of a group as the forms of its page ask for them, and what they would change.

A form is first sent as a question, which changes nothing and returns counts; then as a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketray.base.names import check_group, check_topic
from rocketray.broker.filtering.filter_diff import diff_filters
from rocketray.broker.filtering.preview import PreviewRange
from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.queues_here import queues_of
from rocketray.services.admin.seeking import OffsetMove, plan_moves
from rocketray.services.admin.waiting_retries import waiting_retries
from rocketray.views.lookups import time_ms_of
from rocketray.views.message_records import diff_record
from rocketray.views.node_records import move_record

from .form_fields import checked_texts, filter_or_name, looked_up, number_of

_GOALS = ("latest", "earliest", "offset", "time")
_SCANNED_MAX = 1_000_000  # some seconds
_EXAMPLES = 5  # a page shows them beside the counts


@dataclass(frozen=True, slots=True)
class MoveForm:
    """A group's offsets in a topic, in one queue or in all, go to another place."""

    group: str
    topic: str
    queue_id: int | None
    goal: str
    at: str

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> MoveForm:
        """Return the form; raises ConfigError for a field that is missing or wrong."""
        fields = checked_texts(fields)
        goal = fields.get("goal", "")
        if goal not in _GOALS:
            raise ConfigError(f"the goal is one of {', '.join(_GOALS)}, not {goal[:40]!r}")
        queue_id = number_of(fields, "queue", None)
        return cls(*_names(fields), queue_id, goal, fields.get("at", "").strip())

    def plan(self, node: NodeClient) -> list[OffsetMove]:
        """Return the moves; raises as :func:`plan_moves`, and for a wrong offset or time."""
        offset = number_of({"offset": self.at}, "offset", None) if self.goal == "offset" else None
        if self.goal == "offset" and offset is None:
            raise ConfigError("give the offset to move to")
        return plan_moves(
            node,
            [described(node, self.group, self.topic)],
            to="earliest" if self.goal == "earliest" else "latest",
            time_ms=time_ms_of(self.at) if self.goal == "time" else None,
            offset=offset,
            queue_id=self.queue_id,
        )


@dataclass(frozen=True, slots=True)
class FilterForm:
    """A group reads a topic with another filter."""

    group: str
    topic: str
    kind: str
    expression: str

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> FilterForm:
        """Return the form; raises ConfigError, and FilterSyntaxError for the filter."""
        fields = checked_texts(fields)
        kind, expression = fields.get("kind", "TAG"), fields.get("filter", "").strip()
        form = cls(*_names(fields), kind, expression)
        if not expression:
            raise ConfigError("give the new filter; * is all messages")
        chosen = filter_or_name(kind, expression)
        if isinstance(chosen, Subscription):
            chosen.check_text()
        return form

    def chosen(self, node: NodeClient) -> tuple[Subscription, str | None]:
        """Return the new filter, and its name with its version, if it has one."""
        chosen = filter_or_name(self.kind, self.expression)
        if isinstance(chosen, Subscription):
            return chosen, None
        found = looked_up(lambda question: question(node), self.topic, chosen)
        return found.subscription, f"{found.name}@{found.version}"

    def compare(self, node: NodeClient) -> dict[str, Any]:
        """Return what both filters deliver of the messages not yet read, as ``groups migrate``.

        Raises:
            NodeElsewhereError: all queues of the topic are on other machines.
        """
        description = described(node, self.group, self.topic)
        new, name = self.chosen(node)
        filters = description.subscription, new
        within = PreviewRange(limit=_SCANNED_MAX)
        here = queues_of(node, node.topics.get(self.topic))
        compared = diff_filters(
            here.directories, self.topic, filters, within, description.offsets, show=_EXAMPLES
        )
        record = {"group": self.group, "topic": self.topic, **diff_record(filters, compared)}
        waiting = waiting_retries(node, self.group, scan_max=_SCANNED_MAX).to_json()
        named = {"queuesElsewhere": list(here.elsewhere), "newName": name}
        return {**record, "changed": False, **named, "waitingRetries": waiting}


def would_change(node: NodeClient, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the form in an address would change; None for what it does not ask."""
    asked = query.get("dry", "")
    return {
        "moves": [move_record(one, moved=False) for one in MoveForm.of(query).plan(node)]
        if asked == "move"
        else None,
        "compared": FilterForm.of(query).compare(node) if asked == "filter" else None,
    }


def described(node: NodeClient, group: str, topic: str) -> GroupDescription:
    """Return a group on a topic; raises ConfigError if it does not read it."""
    for one in node.groups.all():
        if (one.group, one.topic) == (group, topic):
            return one
    raise ConfigError(f"group {group!r} does not read topic {topic!r}")


def _names(fields: Mapping[str, str]) -> tuple[str, str]:
    return check_group(fields.get("group", "")), check_topic(fields.get("topic", ""))
