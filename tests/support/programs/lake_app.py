"""An app with an agent and a sink, for tests that run it as a program; it sends its own messages."""

from __future__ import annotations

from typing import Any

from rocketray.topology.app.app import App

app = App("lakes")
clicks = app.topic("Clicks", value_type=bytes, queues=1)


@app.agent(clicks)
async def note(stream: Any) -> None:
    async for _ in stream:
        pass


@app.sink(clicks, schema="queueOffset bigint", trigger="10 milliseconds")
def tell(frame: Any, batch_id: int) -> None:
    print("batch", batch_id, "has", frame.count(), flush=True)  # noqa: T201


@app.task
async def send() -> None:
    for number in range(100):
        await clicks.send(value=b"%d" % number)


if __name__ == "__main__":
    app.main()
