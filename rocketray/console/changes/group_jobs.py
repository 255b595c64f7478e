"""Changes of groups that run: each in a thread, because it waits for members, the last of a group.

A form is turned into offsets, or into a filter, before its write is logged: what is done is what
the log has. A change that the console's end interrupts is completed by the node, or by sending the
form again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rocketray.base.json_fields import json_fields
from rocketray.console.facts.console_link import ConsoleLink
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.machine import user_name
from rocketray.services.admin import migration
from rocketray.services.admin.seeking import OffsetMove, carry_out
from rocketray.views.node_records import move_record, plan_record

from .group_forms import FilterForm, MoveForm

# Both wait for heartbeats of the group's members, which a silent one delays until its session ends,
# after 10 s.
_MOVE_S = 30.0
_MIGRATE_S = 60.0


@dataclass(slots=True)
class GroupJob:
    """A change that runs or has ended, with its result."""

    group: str
    topic: str
    what: str
    is_over: bool = False
    error: str | None = None
    moves: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        content = json_fields(self)
        del content["group"]
        return content


class GroupJobs:
    """The last change of each group since the console started."""

    def __init__(self, link: ConsoleLink) -> None:
        self._link = link
        self._last: dict[str, GroupJob] = {}

    def of(self, group: str) -> GroupJob | None:
        return self._last.get(group)

    def move(self, form: MoveForm, moves: Sequence[OffsetMove]) -> None:
        """Begin the *moves* of a form; raises ConfigError if another change of the group runs."""
        self._begin(GroupJob(form.group, form.topic, "move"), partial(_move, moves))

    def migrate(self, form: FilterForm, subscription: Subscription) -> None:
        """Begin to change the filter to that of a form; raises as :meth:`move`."""
        self._begin(GroupJob(form.group, form.topic, "filter"), partial(_migrate, subscription))

    def _begin(self, job: GroupJob, work: Callable[[GroupJob, NodeClient], None]) -> None:
        running = self.of(job.group)
        if running is not None and not running.is_over:
            raise ConfigError(f"a change of group {job.group!r} runs; wait for its end")
        thread = threading.Thread(target=self._run, args=(job, work), name="change", daemon=True)
        thread.start()  # first: a change whose thread cannot be started is none that runs
        self._last[job.group] = job

    def _run(self, job: GroupJob, work: Callable[[GroupJob, NodeClient], None]) -> None:
        try:
            self._link.ask(partial(work, job))
        except (StreamError, OSError) as error:
            job.error = str(error)
        except Exception as error:  # noqa: BLE001  # else the page shows an end without a failure
            job.error = f"it failed: {error!r}"
        finally:
            job.is_over = True


def _move(moves: Sequence[OffsetMove], job: GroupJob, node: NodeClient) -> None:
    who = f"rocketray console by {user_name()} on {socket.gethostname()}"
    carry_out(node.groups, moves, _MOVE_S, who=who)
    job.moves = [move_record(one, moved=True) for one in moves]


def _migrate(subscription: Subscription, job: GroupJob, node: NodeClient) -> None:
    found = migration.migrate(
        *(node.groups, job.group, job.topic, subscription),
        timeout_s=_MIGRATE_S,
        tell=lambda _: None,
    )
    job.plan = plan_record(found)
