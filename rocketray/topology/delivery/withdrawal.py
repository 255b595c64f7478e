"""Taking deliveries back from their handlers: when queues go to others, and when an app stops.

A handler that is inside of a message may finish it; it is given no other one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from .delivery import Delivery

__all__ = ["until_through", "withdraw"]

logger = logging.getLogger(__name__)

_LOOK_S = 0.005


async def withdraw(
    deliveries: AbstractSet[Delivery],
    gaps: AbstractSet[Delivery],
    grace_s: float,
    is_leased: Callable[[], bool],
) -> None:
    """Mark *deliveries* and wait up to *grace_s* until no handler is inside one of their messages.

    Those that others overtook, the *gaps*, are marked last: what was finished behind them would
    come again.
    """
    end = asyncio.get_running_loop().time() + grace_s
    for delivery in deliveries - gaps:
        delivery.is_withdrawn = True
    await _wait_while(lambda: is_leased() and any(not one.is_passed for one in gaps), end)
    for delivery in gaps:
        delivery.is_withdrawn = True
    await _wait_while(lambda: any(one.is_active for one in deliveries), end)


async def until_through(deliveries: Collection[Delivery], may_wait: Callable[[], bool]) -> None:
    """Wait for handlers that are still inside of *deliveries*, for as long as *may_wait* says.

    As RocketMQ, whose ordered consumer keeps a queue while it is in it: nobody else begins what
    stands behind the message that a handler has, or that message a second time.
    """
    active = [one for one in deliveries if one.is_active]
    for one in active:
        logger.warning("a handler keeps its queue, which is to go to another member, until it is "
                       "through with the message %s", one.place())  # fmt: skip
    await _wait_while(lambda: any(one.is_active for one in active) and may_wait(), math.inf)


async def _wait_while(condition: Callable[[], bool], end: float) -> None:
    """Until *condition* holds no more, or the loop's clock shows *end*."""
    clock = asyncio.get_running_loop().time
    while condition() and clock() < end:  # noqa: ASYNC110  # leaving a message signals nothing, to stay cheap
        await asyncio.sleep(_LOOK_S)
