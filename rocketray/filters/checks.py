"""The broker's checks before it filters for a consumer, in RocketMQ's order and with its codes.

A consumer either sends its subscription with the request, or refers by version to the subscription
in its group's heartbeat. The first failed check decides the response.

Differences on purpose:
- An SQL92 expression that does not parse is refused as SUBSCRIPTION_PARSE_FAILED also if it comes
  with the request. RocketMQ ignores it and then delivers every message.
- A predicate needs no registration: the operator's list allows it.

Source: RocketMQ 5.3.3, ``PullMessageProcessor.processRequest``; codes of ``ResponseCode``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rocketray.errors import FilterError

from .consumer_filter_data import ConsumerFilterData
from .subscription import ExpressionType, Subscription

__all__ = [
    "CheckStatus",
    "FilterKnowledge",
    "FilterRequest",
    "GroupKnowledge",
    "Refusal",
    "check_subscription",
]


class CheckStatus(IntEnum):
    """The reason that a request is refused: RocketMQ's response codes."""

    SYSTEM_ERROR = 1
    NO_PERMISSION = 16
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """A consumer's request: with its own *subscription*, or by *version* of its group's."""

    group: str
    topic: str
    subscription: Subscription | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class GroupKnowledge:
    """The content of a group's heartbeats: its subscription and version for each topic."""

    subscriptions: Mapping[str, tuple[Subscription, int]] = field(default_factory=dict)
    is_broadcasting: bool = False


@dataclass(frozen=True, slots=True)
class FilterKnowledge:
    """The broker's knowledge and permissions.

    ``group`` is None for a group that sent no heartbeat yet. ``registered`` is its SQL92 filter for
    the topic. ``enablePropertyFilter`` is off by default in RocketMQ, and on here.
    """

    group: GroupKnowledge | None = None
    registered: ConsumerFilterData | None = None
    broadcast_allowed: bool = True
    property_filter: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a request: its code, and ``remark`` for people."""

    status: CheckStatus
    remark: str

    def __str__(self) -> str:
        return f"{self.status.name} ({self.status.value}): {self.remark}"


def check_subscription(request: FilterRequest, known: FilterKnowledge) -> Refusal | None:
    """Return the first check that *request* fails; None when the broker may filter for it."""
    if request.subscription is not None:
        refusal, kind = _check_own(request.subscription), request.subscription.expression_type
    else:
        refusal, kind = _check_registered(request, known)
    if refusal is None and kind == "SQL92" and not known.property_filter:
        return Refusal(
            CheckStatus.SYSTEM_ERROR,
            "SQL92 is switched off on this node; subscribe by tags, or have the node started with: "
            "rocketray start --property-filter",
        )
    return refusal


def _check_own(subscription: Subscription) -> Refusal | None:
    try:
        subscription.check_text()
    except FilterError as error:
        return Refusal(CheckStatus.SUBSCRIPTION_PARSE_FAILED, str(error))
    return None


def _check_registered(
    request: FilterRequest, known: FilterKnowledge
) -> tuple[Refusal | None, ExpressionType]:
    """Return the refusal, and the kind of the filter that the group registered."""
    if known.group is None:
        remark = f"group {request.group!r} has no known member; send a heartbeat first"
        return Refusal(CheckStatus.SUBSCRIPTION_NOT_EXIST, remark), "TAG"
    if known.group.is_broadcasting and not known.broadcast_allowed:
        remark = (
            f"group {request.group!r} may not broadcast; use a group whose members share the "
            "messages"
        )
        return Refusal(CheckStatus.NO_PERMISSION, remark), "TAG"
    if request.topic not in known.group.subscriptions:
        remark = f"group {request.group!r} does not subscribe to topic {request.topic!r}"
        return Refusal(CheckStatus.SUBSCRIPTION_NOT_EXIST, remark), "TAG"
    subscription, version = known.group.subscriptions[request.topic]
    kind = subscription.expression_type
    if version < request.version:
        remark = (
            f"group {request.group!r} subscribes to topic {request.topic!r} in version {version}, "
            f"and {request.version} is asked for; send a heartbeat first"
        )
        return Refusal(CheckStatus.SUBSCRIPTION_NOT_LATEST, remark), kind
    return (_check_filter_data(request, known) if kind == "SQL92" else None), kind


def _check_filter_data(request: FilterRequest, known: FilterKnowledge) -> Refusal | None:
    where = f"group {request.group!r} and topic {request.topic!r}"
    if known.registered is None:
        remark = f"no filter is registered for {where}: its expression does not compile"
        return Refusal(CheckStatus.FILTER_DATA_NOT_EXIST, remark)
    if known.registered.client_version < request.version:
        remark = (
            f"the filter for {where} is of version {known.registered.client_version}, "
            f"and {request.version} is asked for; send a heartbeat first"
        )
        return Refusal(CheckStatus.FILTER_DATA_NOT_LATEST, remark)
    return None
