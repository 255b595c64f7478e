"""Settings of a topic as the form of its page asks for them, and what they would change.

An empty field leaves its setting as it is; ``none`` is no limit. The form is first sent as a
question, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rocketray.base.json_fields import json_fields
from rocketray.base.names import check_topic
from rocketray.base.units import format_bytes, format_duration, parse_bytes, parse_duration
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.admin.removals import plan_removals
from rocketray.store.retention import RetentionPolicy

from .form_fields import checked_texts, number_of

PERMISSIONS = (6, 2, 4)
"""Sending and consuming, sending alone, consuming alone: RocketMQ's bits."""
_NO_LIMIT = "none"


@dataclass(frozen=True, slots=True)
class SettingsForm:
    """The wanted settings of a topic: texts of the limits, and a permission, if given."""

    topic: str
    age: str
    size: str
    permission: int | None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> SettingsForm:
        """Return the form; raises ConfigError, which names the field that is wrong."""
        fields = checked_texts(fields)
        age, size = fields.get("age", "").strip(), fields.get("size", "").strip()
        permission = number_of(fields, "permission", None)
        if permission not in (None, *PERMISSIONS):
            raise ConfigError(f"permission is {permission}; give 2 (send), 4 (consume) or 6 (both)")
        form = cls(check_topic(fields.get("topic", "")), age, size, permission)
        form.retention(RetentionPolicy())
        return form

    def retention(self, present: RetentionPolicy) -> RetentionPolicy:
        """Return the *present* retention with the wanted limits."""
        age, size = present.max_age_ms, present.max_bytes
        if self.age:
            age = _named("age", parse_duration, self.age)
        if self.size:
            size = _named("size", parse_bytes, self.size)
        return replace(present, max_age_ms=age, max_bytes=size)

    def changes(self, config: TopicConfig) -> dict[str, dict[str, Any]]:
        """Return what would change: by field, the text before and after.

        Raises:
            ConfigError: the topic is the node's own.
        """
        if config.internal:
            raise ConfigError(
                f"topic {config.name!r} is the node's own, or an app's; change it with: rocketray "
                f"topics alter {config.name}"
            )
        permission = config.perm if self.permission is None else self.permission
        before = limits_of(config.retention) | {"permission": config.perm}
        after = limits_of(self.retention(config.retention)) | {"permission": permission}
        return {
            name: {"before": before[name], "after": after[name]}
            for name in before
            if before[name] != after[name]
        }

    def plan(self, node: NodeClient) -> dict[str, Any]:
        """Return what would change, and what the next round would remove then."""
        config = node.topics.get(self.topic)
        changes = self.changes(config)
        removals = plan_removals(node, config, self.retention(config.retention))
        return {
            "changes": changes,
            "removals": [json_fields(one) for one in removals.queues],
            "unknownQueues": list(removals.unknown),
        }

    def carry_out(self, node: NodeClient) -> None:
        config = node.topics.get(self.topic)
        wanted = self.retention(config.retention)
        if self.permission not in (None, config.perm):
            node.topics.set_permission(self.topic, self.permission)
        if wanted != config.retention:
            node.topics.set_retention(self.topic, wanted)


def limits_of(retention: RetentionPolicy) -> dict[str, Any]:
    """Return the limits of a topic as texts of the form's fields."""
    age, size = retention.max_age_ms, retention.max_bytes
    return {
        "age": _NO_LIMIT if age is None else format_duration(age),
        "size": _NO_LIMIT if size is None else format_bytes(size),
    }


def _named(field: str, parse: Callable[[str], int | None], text: str) -> int | None:
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from None
