"""What becomes of a message whose handler raised, or that cannot be decoded.

At first, and unless an agent asks for order: it is sent back to the node and comes again later,
through its group's retry topic (see actors/send_back.py); the handler goes on with the next one.
After ``max_attempts`` it is a dead letter.

An ``ordered`` agent waits with the queue instead: the message stays where it is, its queue rests
for ``suspend`` seconds, and the same message comes again, before any other of that queue. Other
queues go on meanwhile. RocketMQ calls it SUSPEND_CURRENT_QUEUE_A_MOMENT. A handler may succeed with
the next attempt; a message that cannot be decoded hardly does. So each pause for it is twice as
long as the one before, and it is a dead letter after ``max_attempts`` also where the handler's own
failures are without a limit. With ``on_decode_error="stop"`` any agent holds the queue at it instead,
for ever.

A dead letter says what its group failed of. A queue that is held says so, too: see
``Delivery.failing``.

A message that was damaged on disk is passed in either case, and said and counted: nobody can read
it, and the good ones behind it are not to wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from faust.exceptions import DecodeError

from rocketray.actors.failing import reason_of
from rocketray.actors.send_back import MAX_ATTEMPTS, RETRY_QUEUES, dead_letter_topic
from rocketray.errors import BatchError, ConfigError
from rocketray.names import RETRY_PREFIX, check_topic, is_closed_topic

from .delivery import Delivery, Owner
from .inbox import Hand, Inbox
from .shared_batch import DAMAGE

__all__ = ["DecodeErrorPolicy", "FailureOptions", "FailureRules", "fail", "fail_message"]

logger = logging.getLogger(__name__)

DecodeErrorPolicy = Literal["dead_letter", "stop"]
SUSPEND_S = 1.0
_PAUSE_MAX_S = 30.0
_LINES_OF_A_MESSAGE = MAX_ATTEMPTS  # and then of attempts 32, 64, 128 and so on
_SUSPEND_MIN_S, _SUSPEND_MAX_S = 0.01, 30.0
_ATTEMPTS_LIMIT = 2**31 - 2  # the record's counter is a signed 32-bit number


@dataclass(frozen=True, slots=True)
class FailureRules:
    """What holds for the messages of one feed; ``max_attempts`` None: without a limit.

    ``decode_attempts`` is the same for a message that cannot be decoded, where the queue is held.
    """

    group: str
    max_attempts: int | None = MAX_ATTEMPTS
    dead_letters: str = ""
    is_ordered: bool = False
    suspend_s: float = SUSPEND_S
    retry_queues: int = RETRY_QUEUES
    decode_attempts: int | None = MAX_ATTEMPTS
    stops_at_undecodable: bool = False

    @property
    def rests(self) -> bool:
        """A queue may rest while others go on."""
        return self.is_ordered or self.stops_at_undecodable

    def holds(self, *, is_decoding: bool) -> bool:
        """The queue is held at a message that fails, and not sent back."""
        return self.is_ordered or (is_decoding and self.stops_at_undecodable)

    def pause_s(self, attempt: int, *, is_decoding: bool) -> float:
        """For how long a queue that is held rests after that many failures of its message."""
        if not is_decoding:
            return self.suspend_s
        doublings = min(attempt - 1, 12)  # 2**12 of the shortest suspend is over the most
        return min(self.suspend_s * 2.0**doublings, _PAUSE_MAX_S)


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """What an agent says of its failures; None is the default of each.

    ``dead_letter`` is the topic of its dead letters, ``%DLQ%group`` by default; False: no message
    is ever given up. ``ordered`` None: as the app needs it, which with tables is True.
    ``on_decode_error`` is ``"dead_letter"`` unless no message is ever given up.
    """

    max_attempts: int | None = None
    dead_letter: str | Literal[False] | None = None
    ordered: bool | None = None
    suspend_s: float | None = None
    on_decode_error: DecodeErrorPolicy | None = None

    def check(self, reads: Callable[[str], bool]) -> None:
        """Raise :class:`ConfigError` for what makes no sense for who *reads* certain topics."""
        self._check_attempts()
        self._check_decoding()
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
        decode_attempts = MAX_ATTEMPTS if self.max_attempts is None else self.max_attempts
        is_kept = self.on_decode_error == "stop" or self.dead_letter is False
        return FailureRules(
            group,
            attempts,
            dead_letters,
            ordered,
            suspend_s,
            retry_queues,
            decode_attempts=None if is_kept else decode_attempts,
            stops_at_undecodable=self.on_decode_error == "stop",
        )

    def _check_decoding(self) -> None:
        known = get_args(DecodeErrorPolicy)
        if self.on_decode_error is not None and self.on_decode_error not in known:
            raise ConfigError(
                f"on_decode_error={self.on_decode_error!r}: say 'dead_letter', so that a message "
                "that cannot be decoded is given up after max_attempts, or 'stop', so that its "
                "queue is held at it"
            )
        if self.on_decode_error == "dead_letter" and self.dead_letter is False:
            raise ConfigError(
                "on_decode_error='dead_letter' with dead_letter=False: a message that cannot be "
                "decoded would have nowhere to go; leave one of them out"
            )

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
        is_endless = self.ordered and attempts is None and self.on_decode_error == "stop"
        if self.dead_letter and is_endless:
            raise ConfigError(
                f"dead_letter={self.dead_letter!r}: an ordered agent with on_decode_error='stop' "
                "tries every message without a limit, so there are no dead letters; give "
                "max_attempts= as well"
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


async def fail_message(
    inbox: Inbox,
    delivery: Delivery,
    error: BaseException,
    who: str,
    *,
    in_handler: bool = True,
    is_decoding: bool = False,
) -> bool:
    """The message at the cursor of *delivery* failed; whether the delivery goes on behind it.

    That may have been before a handler had it, and at its decoding.
    """
    owner = delivery.owner
    if owner is None or delivery.is_withdrawn or delivery.is_passed:
        return False
    if not delivery.is_acknowledged(delivery.cursor):
        try:
            if isinstance(error, DAMAGE):  # of this message, unless the handler read another one
                delivery.shared.check(delivery.cursor)
            is_decoding = is_decoding or isinstance(error, DecodeError)
            owner.count_failure(in_handler=in_handler, is_decoding=is_decoding)
            if not await _settle(inbox, owner, delivery, error, who, is_decoding=is_decoding):
                return False
        except DAMAGE as damage:  # it can neither be handed out nor be sent back
            owner.pass_damaged(delivery, delivery.cursor, damage)
    delivery.cursor += 1
    return True


async def _settle(
    inbox: Inbox,
    owner: Owner,
    delivery: Delivery,
    error: BaseException,
    who: str,
    *,
    is_decoding: bool,
) -> bool:
    """Have the queue rest, or send the message at the cursor back; whether it is done with."""
    rules, place, reason = owner.rules, delivery.place(), reason_of(error)
    attempt = delivery.note_attempt()
    is_held = rules.holds(is_decoding=is_decoding)
    limit = rules.decode_attempts if is_decoding else rules.max_attempts
    if is_held and (limit is None or attempt <= limit):
        pause_s = rules.pause_s(attempt, is_decoding=is_decoding)
        inbox.rest(delivery, pause_s)
        delivery.hold(None if limit is None else limit + 1, reason)
        if attempt <= _LINES_OF_A_MESSAGE or attempt & (attempt - 1) == 0:
            _log(inbox, who, place, f"attempt {attempt}, again in {pause_s:g} s", error)
        return False
    attempts = attempt if is_held else None
    given = await owner.give_back(delivery, delivery.cursor, reason, attempts)
    if given is None and not delivery.is_acknowledged(delivery.cursor):
        return False  # its queue was taken away
    _log(inbox, who, place, given or "and was acknowledged meanwhile", error)
    return True


def _log(inbox: Inbox, who: str, place: str, became: str, error: BaseException) -> None:
    """One line a failure, and seldom its traceback, for all may fail alike."""
    traced = error if inbox.may_trace(error) else None
    logger.error("%s failed %s, %s: %r", who, place, became, error, exc_info=traced)
