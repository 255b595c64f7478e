"""Consumer groups of one app: their members, and the check that a group subscribes alike.

Every agent is a group of its own, ``"{app.id}-{agent name}"``, unless it names one. A stream
without an agent belongs to ``"{app.id}-{topic}"``. The members of a group share its messages, so
all of them must subscribe to the same topics with the same expressions. In RocketMQ, breaking this
rule is the first cause of lost messages. Here it is an error when the agent is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from rocketray.base.names import check_group
from rocketray.errors import ConfigError, StrategyConflictError, SubscriptionConflictError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.groups.assignment import Strategy

from .failure_rules import FailureOptions

if TYPE_CHECKING:
    from rocketray.groups.member_options import StartFrom


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """The membership of a stream in *group*, for the messages that match *subscription*.

    - ``subscription`` is a filter, or the name of one of the topic, which is looked up at the join.
    - ``handlers`` is how many handlers of this process share the messages of the one member.
    - ``strategy`` is how the members of the group divide the queues.
    - ``failures`` are the rules for a message on which a handler raises.
    - ``start`` is the group's start offset; None means the app's.
    - ``is_private``: one instance alone reads, whatever queue numbers the others own.
    - ``is_broadcast``: each member receives every message, and failed messages are skipped.
    """

    group: str
    subscription: Subscription | FilterName
    handlers: int = 1
    strategy: Strategy = "averagely"
    failures: FailureOptions = field(default_factory=FailureOptions)
    start: StartFrom | int | None = None
    is_private: bool = False
    is_broadcast: bool = False

    def __post_init__(self) -> None:
        has_rules = self.failures != FailureOptions() or self.strategy != "averagely"
        if self.is_broadcast and has_rules:
            raise ConfigError(
                "a broadcast agent logs, counts and skips failed messages, and gets all queues: "
                "leave out max_attempts, dead_letter, ordered, suspend, on_decode_error and "
                "strategy"
            )


def make_start(start: StartFrom | datetime | None) -> StartFrom | int | None:
    """Return *start* as members take it; a time without a zone is local.

    Raises:
        ConfigError: it is neither "earliest" nor "latest" nor a time.
    """
    if isinstance(start, datetime):
        # A time before 1970 means all messages: store times are not negative.
        return max(0, int(start.astimezone().timestamp() * 1000))
    if start not in ("earliest", "latest", None):
        raise ConfigError(
            f"start is {start!r}; a new group starts at 'earliest', at 'latest' or at a datetime"
        )
    return start


class DeclaredGroups:
    """The groups of one app and their subscriptions, by topic."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, str]] = {}
        self._strategies: dict[str, Strategy] = {}
        self._predicates: set[str] = set()

    def join(self, membership: GroupMembership, topics: Sequence[str]) -> None:
        """Record a member of a group.

        Raises:
            SubscriptionConflictError: the group has a member that subscribes differently.
            StrategyConflictError: the group has a member with another strategy.
        """
        group, chosen = check_group(membership.group), membership.subscription
        strategy = self._strategies.setdefault(group, membership.strategy)
        if strategy != membership.strategy:
            names = (f"strategy {name!r}" for name in (strategy, membership.strategy))
            raise StrategyConflictError(group, ", ".join(topics), *names)
        if isinstance(chosen, Subscription) and chosen.expression_type == "CLASS":
            self._predicates.add(chosen.expression)
        says = f"filter {chosen}" if isinstance(chosen, FilterName) else str(chosen)
        offered = dict.fromkeys(topics, says)
        # A first member is compared with itself. Both sets are walked, because a topic that only
        # one member reads is a conflict, too.
        existing = self._groups.setdefault(group, offered)
        for topic in {**existing, **offered}:
            before, now = existing.get(topic), offered.get(topic)
            if before != now:
                raise SubscriptionConflictError(group, topic, before or _NONE, now or _NONE)

    def predicates(self) -> tuple[str, ...]:
        """Return the import paths of the predicates that groups name, in order."""
        return tuple(sorted(self._predicates))


_NONE = "no subscription"
