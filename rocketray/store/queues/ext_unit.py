"""A unit beside a queue entry, in a store that keeps filter bitmaps (consume_queue_ext.py)."""

from __future__ import annotations

from typing import NamedTuple


class ExtUnit(NamedTuple):
    """One unit. Bit *j* of ``bitmap`` is ``1 << (j % 8)`` of byte ``j // 8``; None: no bitmap."""

    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes | None
