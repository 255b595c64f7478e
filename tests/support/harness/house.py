"""The house: its suites from the ground up, and their rooms.

A suite is a package in ``rocketray``, or beside it. It imports itself and those of earlier rows; the
suites of one row do not know each other. The same holds for the rooms of a suite, where they are
named; "" is what stands in the suite itself.
"""

from __future__ import annotations

import ast

from support.harness.source_tree import PACKAGES, ROOT, source_file

Rooms = tuple[tuple[str, ...], ...]
HOUSE: tuple[dict[str, Rooms], ...] = (
    {"errors": (), "hashing": (), "message": (), "base": ()},
    {"tracing": ()},
    {"kernels": ()},
    {
        "store": (
            ("formats",),
            ("files",),
            ("batches", "queues", "index"),
            ("log",),
            ("reading",),
            ("recovery",),
            ("",),
            ("importing",),
        ),
        "filters": (),
    },
    {
        "runtime": (
            ("", "calls"),
            ("files",),
            ("ray_process", "ipc", "register", "process_logs"),
        ),
    },
    {
        "groups": (("journal",), ("",)),
    },
    {
        "broker": (
            ("topics",),
            ("retries",),
            ("filtering", "named_filters"),
            ("shards", "disks", "fetching"),
            ("backups",),
        ),
    },
    {
        "messaging": (("api",), ("producers", "consumers"), ("remote",)),
    },
    {
        "services": (
            ("admin", "system"),
            ("health",),
            ("metrics",),
            ("delays", "transactions", "staging"),
            ("explaining",),
        ),
    },
    {
        "actors": (
            ("client",),
            ("cluster",),
        ),
    },
    {"client": ()},
    {
        "topology": (
            ("",),
            ("values",),
            ("tables",),
            ("delivery",),
            ("faust",),
            ("stock",),
            ("app",),
        ),
    },
    {"queries": (("ranges",), ("ray_data", "spark"))},
    {"hosting": ()},
    {"testing": ()},
    {"views": ()},
    {"console": (("facts",), ("changes",), ("pages",), ("",))},
    {
        "cli": (
            ("terminal",),
            ("arguments",),
            ("doctor", "filters", "groups", "messages", "nodes", "store"),
            ("",),
        ),
    },
    {"rocketray_bench": (), "rocketray_demo": (), "pyspark_rocketray": ()},
)
GROUND = HOUSE[0].keys()  # they use each other
ROOMS = {suite: rooms for row in HOUSE for suite, rooms in row.items() if rooms}


def map_rows() -> list[str]:
    """The rows of the map in ARCHITECTURE.md, from the roof down: suites, purposes and rooms."""
    return [_map_row(suite, rooms) for row in reversed(HOUSE) for suite, rooms in row.items()]


def _map_row(suite: str, rooms: Rooms) -> str:
    package = ROOT / suite if suite in PACKAGES else ROOT / "rocketray" / suite
    file = source_file(package / "__init__.py" if package.is_dir() else package.with_suffix(".py"))
    said = (ast.get_docstring(file.tree) or "").partition("\n")[0]
    named = " ".join(room for row in rooms for room in row if room)
    return f"| `{suite}` | {said} | {named} |"
