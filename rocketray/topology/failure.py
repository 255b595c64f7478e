"""What becomes of a message whose handler raised.

At first, and unless an agent asks for order: it is sent back to the node and comes again later,
through its group's retry topic (see actors/send_back.py); the handler goes on with the next one.
After ``max_attempts`` it is a dead letter.

An ``ordered`` agent waits with the queue instead: the message stays where it is, its queue rests
for ``suspend`` seconds, and the same message comes again, before any other of that queue. Other
queues go on meanwhile. RocketMQ calls it SUSPEND_CURRENT_QUEUE_A_MOMENT.

A message that was damaged on disk is passed in either case, and said and counted: nobody can read
it, and the good ones behind it are not to wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rocketray.actors.send_back import MAX_ATTEMPTS, RETRY_QUEUES, dead_letter_topic
from rocketray.errors import BatchError, ConfigError
from rocketray.names import RETRY_PREFIX, check_topic, is_closed_topic

from .delivery import Delivery, Owner
from .inbox import Hand, Inbox
from .shared_batch import DAMAGE

__all__ = ["FailureOptions", "FailureRules", "fail", "fail_message"]

logger = logging.getLogger(__name__)

SUSPEND_S = 1.0
_SUSPEND_MIN_S, _SUSPEND_MAX_S = 0.01, 30.0
_ATTEMPTS_LIMIT = 2**31 - 2  # the record's counter is a signed 32-bit number


@dataclass(frozen=True, slots=True)
class FailureRules:
    """What holds for the messages of one feed; ``max_attempts`` None: without a limit."""

    group: str
    max_attempts: int | None = MAX_ATTEMPTS
    dead_letters: str = ""
    is_ordered: bool = False
    suspend_s: float = SUSPEND_S
    retry_queues: int = RETRY_QUEUES


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """What an agent says of its failures; None is the default of each.

    ``dead_letter`` is the topic of its dead letters, ``%DLQ%group`` by default; False: no message
    is ever given up. ``ordered`` None: as the app needs it, which with tables is True.
    """

    max_attempts: int | None = None
    dead_letter: str | Literal[False] | None = None
    ordered: bool | None = None
    suspend_s: float | None = None

    def check(self, reads: Callable[[str], bool]) -> None:
        """Raise :class:`ConfigError` for what makes no sense for who *reads* certain topics."""
        self._check_attempts()
        if isinstance(self.dead_letter, str):
            check_topic(self.dead_letter)
            if reads(self.dead_letter):
                raise ConfigError(
                    f"dead_letter={self.dead_letter!r} is a topic that the agent reads itself, so "
                    "a message that always fails would go round for ever; name another topic"
                )
            if self.dead_letter.startswith(RETRY_PREFIX) or is_closed_topic(self.dead_letter):
                raise ConfigError(
                    f"dead_letter={self.dead_letter!r}: what is stored there is delivered again, or "
                    "is the node's own; name another topic"
                )
        if self.suspend_s is not None:
            if not self.ordered:
                raise ConfigError(
                    "suspend= is how long the queue of an ordered agent rests: ordered=True"
                )
            if not _SUSPEND_MIN_S <= self.suspend_s <= _SUSPEND_MAX_S:
                raise ConfigError(
                    f"suspend={self.suspend_s}: a queue rests from {_SUSPEND_MIN_S} to "
                    f"{_SUSPEND_MAX_S:g} seconds"
                )

    def rules(
        self, group: str, *, is_ordered: bool, retry_queues: int = RETRY_QUEUES
    ) -> FailureRules:
        """What follows for *group*; *is_ordered* is what the app needs where nothing is said."""
        ordered = is_ordered if self.ordered is None else self.ordered
        attempts = self.max_attempts
        if attempts is None and not ordered and self.dead_letter is not False:
            attempts = MAX_ATTEMPTS
        suspend_s = SUSPEND_S if self.suspend_s is None else self.suspend_s
        dead_letters = self.dead_letter or dead_letter_topic(group)
        return FailureRules(group, attempts, dead_letters, ordered, suspend_s, retry_queues)

    def _check_attempts(self) -> None:
        attempts = self.max_attempts
        if attempts is not None and (
            isinstance(attempts, bool) or not 0 <= attempts <= _ATTEMPTS_LIMIT
        ):
            raise ConfigError(
                f"max_attempts={attempts!r}: say how often a message comes again, from 0 to "
                f"{_ATTEMPTS_LIMIT}; the default is {MAX_ATTEMPTS}"
            )
        if isinstance(self.dead_letter, bool) and self.dead_letter:
            raise ConfigError(
                "dead_letter=True says nothing new: dead letters go to %DLQ% and the group's name; "
                "name another topic, or say False so that no message is ever given up"
            )
        if self.dead_letter is False and attempts is not None:
            raise ConfigError(
                f"max_attempts={attempts} with dead_letter=False: a message that came so often "
                "would have nowhere to go; leave one of them out"
            )
        if self.dead_letter and self.ordered and attempts is None:
            raise ConfigError(
                "an ordered agent tries a message without a limit, so there are no dead letters; "
                "give max_attempts= as well"
            )


async def fail(inbox: Inbox, hand: Hand, error: BaseException, who: str) -> None:
    """The handler raised *error* while it had *hand*: settle that.

    Of a list or a batch, each message comes again alone, so that the one that fails is told from
    its neighbours. A :class:`BatchError` names it: what stood before it is finished.
    """
    if isinstance(error, BatchError) and hand.is_list:
        blamed = hand.blame(error.index)
        if blamed is not None:
            await fail_message(inbox, blamed, error.__cause__ or error, who)
            return
    runs = hand.runs
    if len(runs) == 1 and runs[0][2] - runs[0][1] == 1:
        await fail_message(inbox, runs[0][0], error, who)
        return
    for delivery, _, end in runs:
        delivery.alone_until = max(delivery.alone_until, end)
    count = sum(end - begin for _, begin, end in runs)
    logger.warning("%s failed on %d messages, which now come one by one: %r", who, count, error)


async def fail_message(inbox: Inbox, delivery: Delivery, error: BaseException, who: str) -> bool:
    """The message at the cursor of *delivery* failed; whether the delivery goes on behind it."""
    owner = delivery.owner
    if owner is None or delivery.is_withdrawn or delivery.is_passed:
        return False
    if not delivery.is_acknowledged(delivery.cursor):
        try:
            if isinstance(error, DAMAGE):  # of this message, unless the handler read another one
                delivery.shared.check(delivery.cursor)
            if not await _settle(inbox, owner, delivery, error, who):
                return False
        except DAMAGE as damage:  # it can neither be handed out nor be sent back
            owner.pass_damaged(delivery, delivery.cursor, damage)
    delivery.cursor += 1
    return True


async def _settle(
    inbox: Inbox, owner: Owner, delivery: Delivery, error: BaseException, who: str
) -> bool:
    """Have the queue rest, or send the message at the cursor back; whether it is done with."""
    rules, place = owner.rules, delivery.place()
    attempt = delivery.note_attempt()
    if rules.is_ordered and (rules.max_attempts is None or attempt <= rules.max_attempts):
        inbox.rest(delivery, rules.suspend_s)
        became = f"attempt {attempt}, again in {rules.suspend_s:g} s"
        _log(inbox, who, place, became, error)
        return False
    given = await owner.give_back(delivery, delivery.cursor, attempt if rules.is_ordered else None)
    if given is None and not delivery.is_acknowledged(delivery.cursor):
        return False  # its queue was taken away
    _log(inbox, who, place, given or "and was acknowledged meanwhile", error)
    return True


def _log(inbox: Inbox, who: str, place: str, became: str, error: BaseException) -> None:
    """One line a failure; the traceback at most once a second, for all may fail alike."""
    traced = error if inbox.may_trace() else None
    logger.error("%s failed %s, %s: %r", who, place, became, error, exc_info=traced)
