"""One program on each machine of a cluster: python examples/several_machines.py, end with Ctrl-C.

Start it on every machine, with ROCKETRAY_CLUSTER set to the name of the cluster, and RAY_ADDRESS to
its Ray. Each instance sends readings of its own meter, to queues on the disks of all machines. All
are members of one group: each reading is handled once, on any machine. ``rocketray topology`` shows
where the queues are. Without ROCKETRAY_CLUSTER, the node on ./rocketray-data is used.
"""

from __future__ import annotations

import socket

import rocketray as rr

app = rr.App("meters")
here = socket.gethostname()


class Reading(rr.Record):
    """The number that a meter shows, and the machine that it is on."""

    machine: str
    number: int


readings = app.topic("MeterReadings", value_type=Reading, queues=4)


@app.agent(readings)
async def count(stream: rr.Stream[Reading]) -> None:
    """Print each reading, with the machine that handles it and the queue."""
    async for event in stream.events():
        reading = event.value
        print(
            f"{here} handles {reading.number} of {reading.machine}, queue {event.message.partition}"
        )


@app.task
async def send_readings() -> None:
    """Send 20 readings, each to the next queue."""
    for number in range(20):
        await readings.send(value=Reading(here, number), partition=number % 4)


if __name__ == "__main__":
    app.main()
