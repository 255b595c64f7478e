"""Handling of a message on which a handler raised, or that cannot be decoded.

- By default the message is sent back to the node and redelivered later, through its group's retry
  topic (see broker/retries/retry_records.py); the handler continues with the next message. After
  ``max_attempts`` it is dead-lettered.
- An ``ordered`` agent holds the queue instead, as RocketMQ's SUSPEND_CURRENT_QUEUE_A_MOMENT: the
  queue pauses for ``suspend`` seconds, and the same message is redelivered before any other of that
  queue. Other queues continue meanwhile.
- A message that cannot be decoded is unlikely to succeed later. So each pause for it is twice as
  long as the one before, and it is dead-lettered after ``max_attempts`` even if the handler's own
  failures have no limit. With ``on_decode_error="stop"`` any agent holds the queue at it instead,
  for ever.
- A message that was damaged on disk is skipped in either case, logged and counted: it cannot be
  read, and the intact ones behind it must not wait for it.

A dead letter carries the error of its group. A held queue reports its error, too: see
``Delivery.failing``.

A handler that fails outside of a message is restarted after a pause, which doubles with every
consecutive failure: a handler that can never succeed costs little.
"""

from __future__ import annotations

import logging

from faust.exceptions import DecodeError

from rocketray.broker.retries.retry_records import MAX_ATTEMPTS
from rocketray.errors import BatchError
from rocketray.groups.failing import reason_of
from rocketray.runtime.process_logs.log_line import MessagePlace, place_extra
from rocketray.topology.values.shared_batch import DAMAGE

from .delivery import Delivery, Owner, place_of
from .inbox import Hand, Inbox

logger = logging.getLogger(__name__)

FIRST_DELAY_S = 0.01  # a single failure costs no noticeable time
MAX_DELAY_S = 30.0  # a handler that never succeeds logs two lines a minute
_MAX_DOUBLINGS = 12  # 0.01 s * 2**12 is over MAX_DELAY_S
_LINES_OF_A_MESSAGE = MAX_ATTEMPTS  # from then on, of attempts 32, 64, 128 and so on


async def fail(inbox: Inbox, hand: Hand, error: BaseException, who: str) -> None:
    """Handle *error*, which the handler raised while it had the values of *hand*.

    After a failed list or batch each message is redelivered singly, so that the failing one is
    identified. A :class:`BatchError` names it: the messages before it are finished.
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
    delivery, begin, end = runs[0]
    logger.warning(
        "%s failed on %d messages, which are now delivered one by one: %r",
        *(who, count, error),
        extra=place_extra(place_of(delivery, begin, end) if len(runs) == 1 else None),
    )


async def fail_message(
    inbox: Inbox,
    delivery: Delivery,
    error: BaseException,
    who: str,
    *,
    in_handler: bool = True,
    is_decoding: bool = False,
) -> bool:
    """Handle a failed message at the cursor; return whether *delivery* continues behind it.

    It may have failed before a handler had it, or at its decoding.
    """
    owner = delivery.owner
    if owner is None or delivery.is_withdrawn or delivery.is_passed:
        return False
    if not delivery.acks.has(delivery.cursor):
        try:
            # ``check`` raises for the former, which the ``except`` below skips.
            if isinstance(error, DAMAGE):  # of this message, unless the handler read another one
                delivery.shared.check(delivery.cursor)
            is_decoding = is_decoding or isinstance(error, DecodeError)
            owner.count_failure(
                reason_of(error),
                None if in_handler else place_of(delivery),
                is_decoding=is_decoding,
            )
            if not await _settle(inbox, owner, delivery, error, who, is_decoding=is_decoding):
                return False
        except DAMAGE as damage:  # it can neither be delivered nor be sent back
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
    """Pause the queue, or send the message at the cursor back; return whether it is done with."""
    rules, place, reason = owner.rules, place_of(delivery), reason_of(error)
    attempt = delivery.attempts.note(delivery.cursor)
    is_held = rules.holds(is_decoding=is_decoding)
    limit = rules.decode_attempts if is_decoding else rules.max_attempts
    if is_held and (limit is None or attempt <= limit):
        pause_s = rules.pause_s(attempt, is_decoding=is_decoding)
        inbox.rest(delivery, pause_s)
        delivery.attempts.hold(
            delivery.queue_offset(), None if limit is None else limit + 1, reason
        )
        # The second condition is true for powers of two.
        if attempt <= _LINES_OF_A_MESSAGE or attempt & (attempt - 1) == 0:
            _log(inbox, who, place, f"attempt {attempt}, again in {pause_s:g} s", error)
        return False
    attempts = attempt if is_held else None
    outcome = await owner.give_back(delivery, delivery.cursor, reason, attempts)
    if outcome is None and not delivery.acks.has(delivery.cursor):
        return False  # its queue was revoked
    _log(inbox, who, place, outcome or "and was acknowledged meanwhile", error)
    return True


def _log(inbox: Inbox, who: str, place: MessagePlace, became: str, error: BaseException) -> None:
    """Log a line for each failure, and seldom its traceback, because all may fail alike."""
    traced = error if inbox.may_trace(error) else None
    logger.error(
        "%s failed %s, %s: %r",
        *(who, place.position(), became, error),
        exc_info=traced,
        extra=place_extra(place),
    )


def backoff_s(attempts: int) -> float:
    """Return the seconds to wait after *attempts* consecutive failures: doubling, at most 30."""
    doublings = min(max(attempts, 1) - 1, _MAX_DOUBLINGS)
    return min(FIRST_DELAY_S * 2.0**doublings, MAX_DELAY_S)


def note_failure(who: str, error: BaseException, inbox: Inbox | None) -> float:
    """Count and log a failure of *who*; return the seconds to wait before the next attempt.

    The traceback is logged at the first one.
    """
    attempts = 1 if inbox is None else inbox.note_failure()
    delay = backoff_s(attempts)
    logger.error(
        "%s failed outside of a message, attempt %d, retried in %.2f s: %r",
        who,
        attempts,
        delay,
        error,
        exc_info=error if attempts == 1 else None,
    )
    return delay
