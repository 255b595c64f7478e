"""The log of messages on which a member's SQL92 filter fails.

A message on which the expression fails does not match, so a group could miss every message of a
kind unnoticed. The first failure of each expression is logged with the message and the reason from
the scalar evaluator. Later failures are counted, and logged at each power of ten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rocketray.base.quantity import counted
from rocketray.errors import FilterEvaluationError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_messages import NodeMessages

from .stream_source import MemberStream

_LOG = logging.getLogger(__name__)


class FilterErrorLog:
    """The filter errors that one member logs; for one thread at a time."""

    def __init__(self, messages: NodeMessages, group: str, topic: str) -> None:
        self._messages = messages
        self._group = group
        self._topic = topic
        self._told: set[Subscription] = set()
        self._next_count = 10

    def log_failures(self, streams: Iterable[MemberStream], count: int) -> None:
        """Log the first failure of each expression, and the total *count* when it is due."""
        for stream in streams:
            subscription, queue_offset = stream.part.subscription, stream.first_error
            if queue_offset is not None and subscription not in self._told:
                self._told.add(subscription)
                self._tell(subscription, stream.queue_id, queue_offset)
        if count >= self._next_count:
            self._next_count = 10 ** len(str(count))
            _LOG.warning(
                "group %s: the SQL filter failed on %s of topic %s so far; see: rocketray "
                "filter stats %s",
                *(self._group, counted(count, "message"), self._topic, self._group),
            )

    def _tell(self, subscription: Subscription, queue_id: int, queue_offset: int) -> None:
        message = self._find(queue_id, queue_offset)
        _LOG.warning(
            "group %s: the SQL filter %r failed on the message at topic %s queue %d offset %d, "
            "unique key %s: %s; it does not match, so the group does not get it; for the number "
            "of such messages see: rocketray filter stats %s",
            *(self._group, subscription.expression, self._topic, queue_id, queue_offset),
            "-" if message is None else message.unique_key,
            "it can no longer be read" if message is None else _reason(subscription, message),
            self._group,
        )

    def _find(self, queue_id: int, queue_offset: int) -> StoredMessage | None:
        try:
            return self._messages.at(self._topic, queue_id, queue_offset)
        except (StreamError, OSError):
            return None  # removed in the meantime


def _reason(subscription: Subscription, message: StoredMessage) -> str:
    try:
        subscription.compiled().evaluate(message.properties)
    except FilterEvaluationError as error:
        return str(error)
    return "it does not fail now"
