"""An ordered consumer whose handler fails: python examples/ordered_failures.py, end with Ctrl-C.

Messages with one key are in one queue. The agent is ordered, so a failed step is tried again, here
every 0.2 seconds, before any later step of its queue, and the steps of each account are booked in
their order. A step that keeps failing is moved to the dead-letter topic after three retries, and
its queue continues. The other queue does not wait meanwhile.
"""

from __future__ import annotations

import rocketray as rr

app = rr.App("ledger")
attempts: dict[str, int] = {}


class Step(rr.Record):
    """A step on an account; the bank refuses it ``failures`` times."""

    account: str
    number: int
    failures: int = 0


steps = app.topic("Steps", value_type=Step, queues=2)


def book(step: Step) -> int:
    """Book one step, and return the number of attempts; raises while the bank refuses it."""
    name = f"{step.account}-{step.number}"
    attempts[name] = attempts.get(name, 0) + 1
    if attempts[name] <= step.failures:
        raise ConnectionError(f"the bank refuses {name}")
    return attempts[name]


@app.agent(steps, ordered=True, suspend=0.2, max_attempts=3)
async def ledger(stream: rr.Stream[Step]) -> None:
    """Book the steps of each account in their order."""
    async for step in stream:
        tries = book(step)
        print(f"account {step.account}: step {step.number} booked, attempt {tries}")


@app.agent(app.topic("%DLQ%ledger-ledger", value_type=Step, queues=1))
async def refused(stream: rr.Stream[Step]) -> None:
    """Report the dead letters."""
    async for step in stream:
        print(f"account {step.account}: step {step.number} is a dead letter")


@app.task
async def send_steps() -> None:
    """Send four steps for account a, in one queue, and two for b, in the other."""
    for step in (Step("a", 1), Step("a", 2, failures=2), Step("a", 3, failures=99), Step("a", 4)):
        await steps.send(key=step.account, value=step)
    for step in (Step("b", 1), Step("b", 2)):
        await steps.send(key=step.account, value=step)


if __name__ == "__main__":
    app.main()
