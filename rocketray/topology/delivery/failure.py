"""What becomes of a message whose handler raised, or that cannot be decoded.

At first, and unless an agent asks for order: it is sent back to the node and comes again later,
through its group's retry topic (see actors/retries/retry_records.py); the handler goes on with the next one.
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

from faust.exceptions import DecodeError

from rocketray.actors.groups.failing import reason_of
from rocketray.actors.retries.retry_records import MAX_ATTEMPTS
from rocketray.errors import BatchError
from rocketray.topology.values.shared_batch import DAMAGE

from .delivery import Delivery, Owner
from .inbox import Hand, Inbox

__all__ = ["fail", "fail_message"]

logger = logging.getLogger(__name__)

_LINES_OF_A_MESSAGE = MAX_ATTEMPTS  # and then of attempts 32, 64, 128 and so on


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
