"""Withdrawal of deliveries from their handlers: at a revocation, and when an app stops.

A handler may finish the message that it is processing; it gets no other one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from .delivery import Delivery, position_text

__all__ = ["until_through", "withdraw"]

logger = logging.getLogger(__name__)

_LOOK_S = 0.005


async def withdraw(
    deliveries: AbstractSet[Delivery],
    gaps: AbstractSet[Delivery],
    grace_s: float,
    is_leased: Callable[[], bool],
) -> None:
    """Mark *deliveries* and wait up to *grace_s* until no handler is processing one of them.

    The *gaps*, which others overtook, are marked last: otherwise finished messages behind them
    would be redelivered.
    """
    end = asyncio.get_running_loop().time() + grace_s
    for delivery in deliveries - gaps:
        delivery.is_withdrawn = True
    await _wait_while(lambda: is_leased() and any(not one.is_passed for one in gaps), end)
    for delivery in gaps:
        delivery.is_withdrawn = True
    await _wait_while(lambda: any(one.is_active for one in deliveries), end)


async def until_through(deliveries: Collection[Delivery], may_wait: Callable[[], bool]) -> None:
    """Wait for handlers that are processing *deliveries*, for as long as *may_wait* allows.

    As RocketMQ, whose ordered consumer keeps a queue while it processes a message of it: no other
    member starts that message a second time, or the ones behind it.
    """
    active = [one for one in deliveries if one.is_active]
    for one in active:
        logger.warning(
            "a queue is revoked, but a handler keeps it until it has finished the message %s",
            position_text(one),
        )
    await _wait_while(lambda: any(one.is_active for one in active) and may_wait(), math.inf)


async def _wait_while(condition: Callable[[], bool], end: float) -> None:
    """Wait until *condition* is false, or the loop's clock shows *end*."""
    clock = asyncio.get_running_loop().time
    while condition() and clock() < end:  # noqa: ASYNC110  # cheap: no event
        await asyncio.sleep(_LOOK_S)
