"""Dead letters by calls: for programs without their files, and commands that load nothing slow."""

from __future__ import annotations

from collections.abc import Iterator

from rocketray.broker.retries.dead_letter_api import DeadLettersApi
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage

_CALL_MAX = 1000  # a call has a minute (CALL_TIMEOUT_S), and each batch of 256 is synced to disk


def letters_by_calls(
    calls: DeadLettersApi,
    group: str,
    subscription: Subscription,
    topic: str | None = None,
    start: int = 0,
) -> Iterator[tuple[StoredMessage, bool]]:
    """Yield the letters of ``dead_letters.letters``."""
    begin: int | None = start
    while begin is not None:
        page = calls.page(group, subscription, topic, begin)
        yield from page.letters
        begin = page.next_queue_offset


def redrive_by_calls(
    calls: DeadLettersApi,
    group: str,
    subscription: Subscription,
    topic: str | None,
    limit: int | None,
) -> int:
    """Do what ``dead_letters.redrive`` does, some letters with each call."""
    count = 0
    while limit is None or count < limit:
        some = _CALL_MAX if limit is None else min(_CALL_MAX, limit - count)
        sent = calls.redrive(group, subscription, topic, some)
        count += sent
        if sent < some:
            break
    return count
