"""One event loop for an app and its services, whatever a program read of them before it ran.

A service of Faust's takes the loop of its first use and keeps it. At the top of a module no loop
runs yet, so one is made that never will: a task that a service starts there stays pending, and its
stop waits for it for ever. A ``SetTable`` reads its loop when it is declared; so does a table whose
content is read there, and a monitor. A stream that is made there, for a task to read, has the
conductor wait on that loop for its subscription, and the start of the app with it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mode import Service
from mode.utils.locks import Event
from mode.utils.trees import Node


def use_running_loop(app: Any) -> None:
    """Have *app* and all its services use the running loop; call it before anything starts."""
    loop = asyncio.get_running_loop()
    owners = [app.flow_control]
    for node in (*app.beacon.traverse(), *app.topics.beacon.traverse()):  # not of the app's tree
        service = node.data if isinstance(node, Node) else node
        if isinstance(service, Service):
            service.loop = loop
            owners.append(service)
    for owner in owners:
        # Events and futures that were made on the other loop: a waiter here would never be woken.
        for name, value in tuple(vars(owner).items()):
            if isinstance(value, Event):
                value._loop = loop  # noqa: SLF001  # contract-tested
            elif isinstance(value, asyncio.Future) and value.get_loop() is not loop:
                setattr(owner, name, loop.create_future())
