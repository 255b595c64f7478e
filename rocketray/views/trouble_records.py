"""Troubles as JSON records, and those of the hosts of apps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rocketray.services.health.troubles import Trouble, TroubleKind

_FAILING = {"restarting": "failed, and starts again", "failed": "failed"}
"""By state; one that runs again after a failure is well."""


def trouble_record(trouble: Trouble) -> dict[str, Any]:
    """Return a trouble as ``status --json`` and the console's overview have it."""
    return {
        "kind": trouble.kind.value,
        "severity": "error" if trouble.kind.is_error else "warning",
        "text": trouble.text,
        "advice": trouble.advice,
        "group": trouble.group,
        "topic": trouble.topic,
    }


def troubles_of_hosts(hosts: Sequence[dict[str, Any]], unknown: str | None) -> list[Trouble]:
    """Return what is wrong with the hosts of apps, as ``status --json`` has them.

    *unknown* says why they are not known.
    """
    if unknown is not None:
        return [Trouble(TroubleKind.UNKNOWN, f"hosts of apps: {unknown}")]
    return [trouble for host in hosts for trouble in _of_host(host)]


def _of_host(host: dict[str, Any]) -> Iterator[Trouble]:
    which = "the sinks" if host["host"] == "sinks" else f"host {host['host']}"
    name = f"{which} of app {host['app']}"
    see = f"see why with: rocketray logs {host['app']}"
    error = host["lastError"]
    if host["state"] == "silent":
        yield Trouble(TroubleKind.APP, f"{name} does not answer", see)
    elif host["state"] in _FAILING:
        why = f": {error['type']}: {error['message']}" if error else ""
        yield Trouble(TroubleKind.APP, f"{name} {_FAILING[host['state']]}{why}", see)
    if (stall := host["stall"]) and not stall["isOver"]:
        yield Trouble(
            TroubleKind.APP,
            f"{name}: {stall['text']}",
            "no other agent, timer or commit of the app runs meanwhile: have the handler await what "
            "it waits for, or call it with asyncio.to_thread",
            topic=stall.get("topic"),
        )
    for sink in host["sinks"]:
        if sink["state"] in _FAILING:
            text = f"sink {sink['sink']} of app {host['app']} {_FAILING[sink['state']]}"
            why = f": {sink['error']}" if sink["error"] else ""
            yield Trouble(TroubleKind.APP, text + why, see, topic=sink["topic"])
