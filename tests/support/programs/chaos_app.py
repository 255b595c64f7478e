"""An app to be killed: one agent keeps order, one does not, both fail at times and keep a journal."""

from __future__ import annotations

import os
from typing import Any

from support.models.journal import Journal, Outcome

from rocketray.base.names import RETRY_PREFIX
from rocketray.topology.app.app import App

app = App("chaos")
numbers = app.topic("Chaos", queues=3, value_serializer="raw")
FAILING = 500  # one number of so many fails at first
failed: set[int] = set()


async def open_journal(agent: str) -> Journal:
    """Beside the node's data."""
    data = (await app.connect()).data
    return Journal(data.parent / "seen", f"chaos-{agent}", str(os.getpid()))


def note(journal: Journal, event: Any, outcome: Outcome) -> None:
    """Write it down, and raise if it fails."""
    message, number = event.message, int(event.value)
    is_retry = message.tp.topic.startswith(RETRY_PREFIX)
    journal.note(message.partition, message.offset, number, is_retry=is_retry, outcome=outcome)
    if outcome != Outcome.DONE:
        raise ValueError(f"{number} fails on purpose")


@app.agent(numbers, ordered=True, suspend=0.02)
async def ordered(stream: Any) -> None:
    journal = await open_journal("ordered")
    async for event in stream.events():
        number = int(event.value)
        fails = number % FAILING == 7 and number not in failed
        failed.add(number)
        note(journal, event, Outcome.TRIED if fails else Outcome.DONE)


@app.agent(numbers, concurrency=2)
async def concurrent(stream: Any) -> None:
    journal = await open_journal("concurrent")
    async for event in stream.events():
        fails = int(event.value) % FAILING == 11 and not event.reconsume_times
        note(journal, event, Outcome.SENT_BACK if fails else Outcome.DONE)
