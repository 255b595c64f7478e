"""The tables of benchmarks/machines.py, and the parts that processes have in a cluster."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.harness.machine_figures import Cell, Figure, Place, parts_table, rates_table
from support.harness.process_use import RAY, ProcessUse, part_of

ALONE, WITH_ANOTHER = Place(1, 1, 0, has_tls=True), Place(2, 2, 1, has_tls=False)


def figure(place: Place, way: str, rate: float, load: float = 1.0, **used_us: float) -> Figure:
    return Figure(Cell(place, way), rate, used_us, load, 0.5)


def test_a_table_has_a_row_for_each_place_and_the_medians_of_its_rounds() -> None:
    figures = [
        figure(ALONE, "arrow", 1_000_000, 2.5, receiver=1.0, filters=0.5),
        figure(WITH_ANOTHER, "send_many", 50_000, sender=9.0, Ray=1.0),
        figure(WITH_ANOTHER, "arrow", 700_000, receiver=1.5),
        figure(ALONE, "arrow", 3_000_000, receiver=3.0),
        figure(ALONE, "arrow", 2_000_000, receiver=2.0),
        figure(ALONE, "send_many", 100_000, sender=8.0),
    ]
    assert [*rates_table(figures)] == [
        "| machines | queues, elsewhere | lists of 1,024 | read as Arrow batches | load | others |",
        "|---|---|---|---|---|---|",
        "| 1 | 1, 0 | 100 k/s, 8.00 + 0.00 µs | 2,000 k/s, 2.00 + 0.00 µs | 1.0 to 2.5 | 0.5 cores |",
        "| 2, no TLS | 2, 1 | 50 k/s, 9.00 + 1.00 µs | 700 k/s, 1.50 + 0.00 µs | 1.0 to 1.0 | 0.5 cores |",
    ]
    assert [*parts_table(figures)][::2] == [
        "| machines | queues, elsewhere | way | sender | receiver | filters | Ray |",
        "| 1 | 1, 0 | read as Arrow batches | 0.00 | 2.00 | 0.00 | 0.00 |",
        "| 2, no TLS | 2, 1 | read as Arrow batches | 0.00 | 1.50 | 0.00 | 0.00 |",
    ]


def test_a_figure_names_its_place_and_the_parts_that_used_something() -> None:
    said = str(
        figure(WITH_ANOTHER, "send_async", 12_345, sender=9.0, shards=10.0, Ray=1.0, nodes=0)
    )
    assert said.startswith("2 machines, 2 queues, 1 elsewhere, no TLS: `send_async` ")
    assert "12,345 messages/s  19.00 µs/message (shards 10.00, sender 9.00, Ray 1.00;" in said


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (b"ray::ShardProcessActor", "shards"),
        (b"ray::GatewayActor.fetch", "gateways"),
        (b"ray::IDLE", RAY),
        (b"/venv/ray/core/src/ray/gcs/gcs_server\0--log_dir=x", RAY),
        (b"/venv/bin/python\0/venv/bin/ray\0start\0--head", RAY),
        (b"/venv/bin/python\0-u\0/venv/ray/_private/runtime_env/agent/main.py", RAY),
        (b"/venv/bin/python\0/venv/bin/rocketray\0start\0--data\0/data", "nodes"),
        (b"sh\0-c\0true", ""),
        (b"", ""),
    ],
)
def test_a_command_line_says_which_part_a_process_has(command: bytes, part: str) -> None:
    assert part_of(command) == part


def test_what_a_known_process_used_is_counted_for_its_part() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        before = ProcessUse(0.0, 0.0, {})
        assert child.stdout
        child.stdout.readline()
        used = ProcessUse.now().since(before, {child.pid: "sender", os.getpid(): "receiver"})
        child.communicate(b"\n")
    assert 0.28 <= used.by_part["sender"] < 0.6
    assert used.by_part["receiver"] > 0
    assert "" not in used.by_part
