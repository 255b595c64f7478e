"""What a member of a consumer group says about itself when it joins."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

from rocketray.errors import ConfigError

from .assignment import Strategy
from .heartbeat import AppInstance

__all__ = ["MemberOptions", "StartFrom", "check_client_id"]

StartFrom = Literal["earliest", "latest"]
_CLIENT_ID_MAX = 255


class MemberOptions(TypedDict, total=False):
    """How a member takes part; what is left out is as in RocketMQ, unless it is said here.

    ``client_id`` is its name in the group, a new one by default. ``start`` counts in queues where
    the group has no offset yet: "earliest", the default, "latest", or the first message that was
    stored at that time or later, in milliseconds since 1970. ``strategy`` divides the
    queues, and the members of one ``together`` read the same queue numbers instead. With
    ``broadcast`` each member gets all messages, and keeps its offsets under its client id in
    ``offsets_directory``, by default DATA/broadcast.
    """

    client_id: str | None
    start: StartFrom | int
    strategy: Strategy
    together: AppInstance | None
    broadcast: bool
    offsets_directory: Path | str | None


def check_client_id(client_id: str) -> str:
    """*client_id*; raises :class:`ConfigError` when a member cannot be called so."""
    if not (0 < len(client_id) <= _CLIENT_ID_MAX and client_id.isprintable()):
        raise ConfigError(
            f"client id {client_id[:40]!r}: a member's name has 1 to {_CLIENT_ID_MAX} characters, "
            "all of which can be printed"
        )
    return client_id
