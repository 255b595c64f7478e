"""The calls about dead letters, for programs on other machines than their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, Endpoint, once


@dataclass(frozen=True, slots=True)
class LetterBox:
    """The dead letters of a group: how many there are, and how many of them were redriven.

    ``newest_reason`` is why the newest letter failed, None if the letter does not say.
    """

    group: str
    topic: str
    letters: int
    redriven: int
    newest_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Some letters, each with whether it was redriven, and where the next page begins, if any."""

    letters: Sequence[tuple[StoredMessage, bool]]
    next_queue_offset: int | None


class DeadLettersApi(Protocol):
    """The calls of the gateway on the disk of the node's own topics; see ``dead_letters``."""

    def boxes(self) -> list[LetterBox]:
        """Return the dead letters of all groups, by group."""

    def page(
        self, group: str, subscription: Subscription, topic: str | None, start: int
    ) -> LetterPage:
        """Return matching letters of a group from a queue offset on; raises as ``letters``."""

    @once
    def redrive(self, group: str, subscription: Subscription, topic: str | None, limit: int) -> int:
        """Redrive letters, and return their number; raises as ``redrive``."""


DEAD_LETTERS = Endpoint(GATEWAY_NAME, DeadLettersApi)
