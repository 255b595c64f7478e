"""Leadership among the instances of an app, for timers, crontabs and tasks with ``on_leader=True``.

The leader is the member of a group of the app's own that owns the one queue of a topic without
messages. So the coordinator decides, an instance that stops hands leadership over, and one whose
lease lapsed no longer leads when another begins (see groups/lease.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rocketray.errors import ActorError
from rocketray.groups.member_options import new_client_id
from rocketray.messaging.consumers.app_member import AppMember
from rocketray.topology.values.wire import group_name

logger = logging.getLogger(__name__)

_NO_MESSAGES = (0, 0)  # the first offset and the end of the leader's queue


class Leadership:
    """The membership of one instance in the leader's group; made and used on the app's loop."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._member: AppMember | None = None
        self.is_wanted = False
        """Whether a part of the app runs only on the leader."""

    @property
    def is_leader(self) -> bool:
        """Whether this instance leads now, and no other can."""
        member = self._member
        return member is not None and member.holds_any() and member.may_hand_out()

    async def start(self) -> None:
        """Join, if a part of the app needs a leader; on return the leader is known."""
        if not self.is_wanted:
            return
        name = group_name(f"{self._app.conf.id}-leader")
        await self._app.declarations.declare(name, 1, internal=True)
        self._member = AppMember(
            (await self._app.connect()).sessions,
            name,
            new_client_id(),
            lambda _: _NO_MESSAGES,
            on_change=self._adopt,
            on_failure=self._failed,
        )
        await asyncio.to_thread(self._member.subscribe, [name])
        await asyncio.to_thread(self._adopt)

    async def stop(self) -> None:
        """Let another instance lead."""
        member, self._member = self._member, None
        if member is not None:
            await asyncio.to_thread(member.close)

    def _adopt(self) -> None:
        if self._member is not None:
            try:
                self._member.adopt()
            except ActorError as error:
                logger.warning(
                    "the leader of app %s is unknown, trying again: %s", self._app.conf.id, error
                )

    def _failed(self, error: Exception) -> None:
        self._app.loop.call_soon_threadsafe(lambda: self._app.add_future(self._app.crash(error)))
