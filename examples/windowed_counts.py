"""A table with windows: the sales of each region in ten seconds.

Run it with ``python examples/windowed_counts.py`` and end it with Ctrl-C. The table is stored in a
changelog topic; after a restart, or on another instance, it continues with the values that it had.
"""

from __future__ import annotations

from datetime import timedelta

import rocketray as rr

app = rr.App("sales")


class Sale(rr.Record):
    """A sale, with its time in seconds since 1970."""

    region: str
    amount: int
    at: float


sales = app.topic("Sales", key_type=str, value_type=Sale, queues=2)
totals = (
    app.Table("totals", default=int)
    .tumbling(timedelta(seconds=10), expires=timedelta(days=36500))
    .relative_to_field(Sale.at)
)


@app.agent(sales)
async def total(stream: rr.Stream[Sale]) -> None:
    """Add each sale to the window of its time; a late sale changes its own, older window."""
    async for sale in stream:
        totals[sale.region] += sale.amount
        begin = int(sale.at // 10 * 10)
        print(f"{sale.region}: {totals[sale.region].value()} in the window from {begin}")


@app.task
async def send_sales() -> None:
    """Send sales of two windows, one of them late."""
    for sale in (
        Sale(region="eu", amount=5, at=1_700_000_001.0),
        Sale(region="eu", amount=7, at=1_700_000_009.0),
        Sale(region="eu", amount=1, at=1_700_000_012.0),
        Sale(region="eu", amount=3, at=1_700_000_004.0),
        Sale(region="us", amount=9, at=1_700_000_003.0),
    ):
        await sales.send(key=sale.region, value=sale)


if __name__ == "__main__":
    app.main()
