"""Change of a running group's subscription, in the steps of filter_plan.py."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plans import PlanProgress
from rocketray.groups.groups_api import GroupsApi

_LOOK_S = 0.2  # members report each second, so a look sooner rarely sees more
_TELL_S = 5.0  # between two lines about what the command waits for


def migrate(
    groups: GroupsApi,
    group: str,
    topic: str,
    subscription: Subscription,
    *,
    timeout_s: float,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> PlanProgress | None:
    """Prepare the change, switch once all members know of it, and wait for the queues.

    A change that was begun before is resumed. Return None when the change is complete, and what is
    still to come after *timeout_s*, or at once if the group has no members. Queues without a reader
    switch when they get one, and members that ask for the old subscription are accepted until they
    are replaced.

    Raises:
        StreamError: the group cannot be changed so, or a member does not learn of it in time.
    """
    told_s = clock_s()
    end_s = told_s + timeout_s
    groups.prepare_change(group, topic, subscription)
    while (found := groups.change_progress(group, topic)) is not None:
        if found.plan.is_switching:
            if not found.without_switch and not found.before_switch:
                return found
            if not found.outdated and not found.updated:
                return found  # no member is there to switch
        elif not found.unaware:
            tell(f"all members have received {subscription}; switching")
            groups.switch_change(group, topic)
            continue
        now_s = clock_s()
        if now_s >= end_s:
            break
        if now_s - told_s >= _TELL_S:
            told_s = now_s
            tell(f"waiting for {_awaited(found)}; {end_s - now_s:.0f} s are left")
        sleep(_LOOK_S)
    if found is not None and not found.plan.is_switching:
        raise StreamError(
            f"members {', '.join(found.unaware)} of group {group!r} have not received the change "
            f"after {timeout_s:g} s; nothing has switched: run the command again, or with --abort"
        )
    return found


def _awaited(found: PlanProgress) -> str:
    """Return the next step and the members or queues that it waits for."""
    if not found.plan.is_switching:
        return f"members {', '.join(found.unaware)} to receive the change"
    queues = sorted({*found.without_switch, *found.before_switch})
    return f"the owners of queues {', '.join(map(str, queues))} to reach the switch"
