"""An app that tests deploy by its path: it counts words in a table and tells each count."""

from __future__ import annotations

from typing import Any

from rocketray.topology.app.app import App

app = App("words", broker_commit_interval=0.2)
words = app.topic("Words", key_type=str, value_type=int, queues=2)
counts_told = app.topic("Counts", key_type=str, value_type=int, queues=2)
counts = app.Table("counts", default=int)


@app.agent(words, name="count")
async def count(stream: Any) -> None:
    async for event in stream.events():
        counts[event.key] += 1
        await counts_told.send(key=event.key, value=counts[event.key])
