"""The coordinator's services for consumer groups: one for their members, one for operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rocketray.filters.subscription import Subscription
from rocketray.groups.journal.group_journal import JournalEntry
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, Endpoint

from .filter_plan import FilterPlan
from .filter_plans import PlanProgress
from .group_descriptions import GroupDescription
from .heartbeat import Heartbeat, HeartbeatReply


class SessionsApi(Protocol):
    """The calls of group members, which keep their sessions; see ``ClusterState``."""

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Report for a member; return the queues that it owns."""

    def leave(self, beat: Heartbeat) -> None:
        """Take the last report of a member, and release all its queues."""


class GroupsApi(Protocol):
    """The calls of operators and programs about groups; see ``GroupAdministration``."""

    def all(self) -> list[GroupDescription]:
        """Return all groups, an entry for each topic."""

    def delete(self, group: str) -> None:
        """Remove a group and its offsets; it must have no members."""

    def journal(self, group: str) -> tuple[JournalEntry, ...]:
        """Return the known events of a group's offsets and filters, oldest first."""

    def prepare_change(self, group: str, topic: str, subscription: Subscription) -> FilterPlan:
        """Let a group hold another subscription beside its own."""

    def change_progress(self, group: str, topic: str) -> PlanProgress | None:
        """Return the progress of a group's change of subscription; None without one."""

    def switch_change(self, group: str, topic: str) -> FilterPlan:
        """Let each queue switch, once all members know the plan."""

    def abort_change(self, group: str, topic: str) -> None:
        """Drop a prepared change."""

    def move_offsets(
        self, group: str, topic: str, targets: Mapping[int, int], who: str = "", like: str = ""
    ) -> str:
        """Order a group to resume at other offsets, by queue; return the name of the order.

        A group that does not read *topic* yet subscribes to it as group *like*, if that is given.
        """

    def moves_left(self, group: str, topic: str, name: str) -> set[int]:
        """Return the queues of an order that their owners have not released yet."""


SESSIONS = Endpoint(COORDINATOR_NAME, SessionsApi)
GROUPS = Endpoint(COORDINATOR_NAME, GroupsApi)
