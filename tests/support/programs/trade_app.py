"""An app that tests deploy by its path: it answers every payment with a result."""

from __future__ import annotations

import asyncio
from typing import Any

import faust

from rocketray.topology.app.app import App

app = App("trade")


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    number: int
    kind: str


orders = app.topic("Orders", value_type=Order, queues=2, tag="kind")
results = app.topic("Results", value_type=bytes, queues=1)
commands = app.topic("Commands", value_type=bytes, queues=1)


@app.agent(orders, tags="pay")
async def pay(stream: Any) -> None:
    async for event in stream.events():
        number = event.value.number
        if number % 100 == 7 and not event.reconsume_times:
            raise ValueError("the first attempt fails on purpose")
        await results.send(value=b"%d" % number, tags="paid")


@app.agent(commands)
async def obey(stream: Any) -> None:
    async for command in stream:
        if command == b"crash":
            asyncio.get_running_loop().call_later(1.0, crash)  # the command is committed by then


def crash() -> None:
    asyncio.ensure_future(app.crash(RuntimeError("asked to")))  # noqa: RUF006  # the last thing


if __name__ == "__main__":
    app.main()
