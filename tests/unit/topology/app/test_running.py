"""What a program that runs an app shows of its log."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOGS = """
import logging
{set_up}
from rocketray.topology.app.running import show_log
show_log()
logging.getLogger("rocketray.topology.app.app").info("ready")
logging.getLogger("rocketray.topology.app.app").info("[^App]: Starting...")
logging.getLogger("faust").info("chatter")
logging.getLogger("faust").warning("careful")
timers = logging.getLogger("mode.timers")
timers.warning("Timer %s is overlapping (interval=%r runtime=%r)", "commit", 0.2, 0.7)
timers.warning("Timer %s is overlapping (interval=%r runtime=%r)", "shop.tick", 1.0, 1.5)
"""
OVERLAP = "Timer {} is overlapping (interval={} runtime={})"
USERS = OVERLAP.format("shop.tick", 1.0, 1.5)


@pytest.mark.parametrize(
    ("set_up", "shown"),
    [
        ("", [" INFO rocketray.topology.app.app: ready", " WARNING faust: careful", USERS]),
        (
            "logging.basicConfig(format='mine %(message)s')",
            ["mine careful", "mine " + OVERLAP.format("commit", 0.2, 0.7), "mine " + USERS],
        ),
    ],
    ids=["nothing is set up", "the program has its own"],
)
def test_a_program_shows_its_start_unless_it_set_logging_up(set_up: str, shown: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGS.format(set_up=set_up)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stderr.splitlines()
    assert len(lines) == len(shown)
    assert all(line.endswith(end) for line, end in zip(lines, shown, strict=True))
    assert done.stdout == ""
