"""The two checks of a tag: by hash on the broker, by text at the consumer.

Source: RocketMQ 5.3.3, ``ExpressionMessageFilter`` and ``PullAPIWrapper.processPullResult``.
"""

from __future__ import annotations

from .subscription import SubscriptionData

__all__ = ["matches_code", "matches_exactly"]

_MASK_32 = 0xFFFFFFFF
_SIGN_32 = 0x80000000


def matches_code(subscription: SubscriptionData, tags_code: int | None) -> bool:
    """Return whether a ConsumeQueue entry may match; None, an unreadable code, always may."""
    if tags_code is None or subscription.sub_string == "*":
        return True
    low = tags_code & _MASK_32
    return (low - (1 << 32) if low & _SIGN_32 else low) in subscription.code_set


def matches_exactly(subscription: SubscriptionData, tags: str | None) -> bool:
    """Return whether the subscription has the message's tag; always True if it names no tags."""
    return not subscription.tags_set or tags in subscription.tags_set
