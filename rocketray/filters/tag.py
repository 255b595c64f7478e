"""The two looks at a tag: by hash on the broker's side, by text on the consumer's.

Source: RocketMQ 5.3.3, ``ExpressionMessageFilter`` and ``PullAPIWrapper.processPullResult``.
"""

from __future__ import annotations

from .subscription import SubscriptionData

__all__ = ["matches_code", "matches_exactly"]

_MASK_32 = 0xFFFFFFFF
_SIGN_32 = 0x80000000


def matches_code(subscription: SubscriptionData, tags_code: int | None) -> bool:
    """Whether a ConsumeQueue entry may match; None, a code that could not be read, always may."""
    if tags_code is None or subscription.sub_string == "*":
        return True
    low = tags_code & _MASK_32
    return (low - (1 << 32) if low & _SIGN_32 else low) in subscription.code_set


def matches_exactly(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether the message's tag is one of the subscription's; all are where it names none."""
    return not subscription.tags_set or tags in subscription.tags_set
