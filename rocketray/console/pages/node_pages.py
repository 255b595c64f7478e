"""The pages of what the node does: what waits, apps and their tables, and the node itself."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rocketray import __version__
from rocketray.base.json_fields import json_fields
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.console.facts.process_table import processes_of
from rocketray.errors import ConfigError
from rocketray.messaging.api.node_client import NodeClient, of_disks_there
from rocketray.views.message_records import half_record
from rocketray.views.node_records import disk_records
from rocketray.views.table_records import changelogs_in, table_record

from .page_context import PageContext, Query, known, shards_of

_HALVES_MAX = 100
_MINUTES_MAX = 100


def waiting(node: NodeClient, _query: Query, _context: PageContext) -> dict[str, Any]:
    """Return the delayed messages of each disk by minute, and the transactions not yet decided."""
    disks: Sequence[str] = ["", *sorted(set(node.disks.homes()) - {""})]
    found = node.transactions.overview(_HALVES_MAX)
    return {
        "delayed": [_delayed(node, disk) for disk in disks],
        "transactions": [half_record(half) for half in found.halves],
        "undecided": found.undecided,
        "ended": json_fields(found.counts),
        "unknownDisks": list(found.unknown),
    }


def apps(node: NodeClient, _query: Query, context: PageContext) -> dict[str, Any]:
    """Return the hosts of apps, with their agents and sinks, as ``status``, and the tables.

    A table is known by its changelog: ``changes`` are messages in it, of which each key has one or
    more, and ``bytes`` the size of its log.
    """
    hosts, unknown = known(partial(context.host_records, node))
    living = sorted({group.group for group in node.groups.all() if group.heard})
    tables = changelogs_in(node.topics.all())
    return {
        "hosts": hosts,
        "unknown": unknown,
        "groupsWithMembers": living,
        "tables": [_table(of_disks_there(node), *each) for each in tables.items()],
    }


def node_page(node: NodeClient, query: Query, context: PageContext) -> dict[str, Any]:
    """Return the state of the node: its disks, its problems, and what is not on disk yet.

    Directory, disk and processes are those of this machine, if it has a disk of the cluster.
    ``doctor`` adds the checks of the command of that name, which takes seconds.
    """
    checks, unknown_checks = known(context.doctor_records if query.get("doctor") else _no_checks)
    problems, unknown = known(lambda: _health(node, "problems"))
    ages, unknown_ages = known(lambda: _health(node, "unflushed"))
    disk, unknown_disk = known(lambda: _room(_directory(context)))
    processes, unknown_processes = known(lambda: processes_of(_directory(context)))
    topics = node.topics.all()
    disks = [
        {key: value for key, value in record.items() if key != "name"}
        for record in disk_records(node, topics)
    ]
    return {
        "release": __version__,
        "cluster": node.cluster,
        "data": None if context.data is None else str(context.data),
        "disk": disk,
        "unknownDisk": unknown_disk,
        "memory": _memory(),
        "doctor": checks,
        "unknownDoctor": unknown_checks,
        "processes": processes,
        "unknownProcesses": unknown_processes,
        "problems": problems,
        "unknown": unknown,
        "unflushed": ages,
        "unknownAges": unknown_ages,
        "topics": len(topics),
        "disks": disks,
    }


def _directory(context: PageContext) -> Path:
    if context.data is None:
        raise ConfigError("this machine has no disk of the cluster")
    return context.data


def _room(data: Path) -> dict[str, int]:
    usage = shutil.disk_usage(data)
    return {"total": usage.total, "free": usage.free}


def _delayed(node: NodeClient, disk: str) -> dict[str, Any]:
    found, unknown = known(partial(node.delays.by_minute, disk, _MINUTES_MAX))
    if found is None:
        nothing = dict.fromkeys(("waiting", "minutes", "later"))
        return {"disk": disk, **nothing, "unknown": unknown}
    return {
        "disk": disk,
        "waiting": sum(count for _, count in found.minutes) + found.later,
        "minutes": [{"due": due_ms, "messages": count} for due_ms, count in found.minutes],
        "later": found.later,
        "unknown": None,
    }


def _table(node: NodeClient, table: str, config: TopicConfig) -> dict[str, Any]:
    shards, unknown = shards_of(node, config)
    return {**table_record(table, config, shards), "unknown": unknown}


def _health(node: NodeClient, what: str) -> Any:
    question = getattr(node, what, None)
    if question is None:
        raise ConfigError("this client of the node cannot ask for it")
    return question()


def _no_checks() -> None:
    """Return what is shown before the checks are asked for."""


def _memory() -> dict[str, int] | None:
    """Return the machine's memory in bytes, total and available; None where it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (x.partition(":") for x in lines)
    }
    return {"total": found["MemTotal"], "available": found["MemAvailable"]}
