"""The smallest app that can be brought up: one agent, which gets nothing."""

from __future__ import annotations

from typing import Any

from rocketray.topology.app.app import App

app = App("least")


@app.agent(app.topic("Least", value_type=bytes, queues=1))
async def wait(stream: Any) -> None:
    async for _ in stream:
        pass
