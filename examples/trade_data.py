"""Orders and payments as they might have been, for the lake of trade."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["COLUMNS", "make_trade"]

COLUMNS = "order_id string, region string, amount int"
REGIONS = {"EU": 0.9, "US": 0.8, "APAC": 0.6}  # and how many of its orders are paid
Trade = dict[str, str | int]


def make_trade(orders: int, seed: int) -> Iterator[tuple[str, Trade]]:
    """Yield the kind and the content of each message; the same ones for the same *seed*."""
    rng = random.Random(seed)  # noqa: S311  # no secret
    for number in range(orders):
        region = rng.choice([*REGIONS])
        value: Trade = {"order_id": f"o-{number}", "region": region, "amount": rng.randrange(1000)}
        yield "order", value
        if rng.random() < REGIONS[region]:
            yield "pay", value
