"""Spark copies a topic to a topic and to a table, while all that takes part is killed at random."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from support.nodes.fleet import TOPIC
from support.programs.spark_copy import COPIES, LOOSE, LOOSE_TABLE, SOURCE, TABLE
from support.spark.spark_kills import ALL, SHARDS, WORKER, KilledCopies, stored

from rocketray.actors.client.connection import Connection
from rocketray.runtime.calls.endpoint import GATEWAY_NAME

STRIKES = int(os.environ.get("ROCKETRAY_TEST_SPARK_STRIKES", "16"))
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300 + 60 * STRIKES)]


@pytest.mark.proves(
    "spark",
    "A driver, a worker, a gateway, a shard or a group's member that is killed: each row is once "
    "in the topic and in the table that is made of it; the same kills repeat rows without "
    "ledgers. All of it in `make test-slow`, also an app's hosts, the coordinator, the filter "
    "actor and the whole node",
)
@pytest.mark.slow
def test_each_row_is_in_topic_and_table_once_whatever_is_killed(
    connection: Connection, rng: Random
) -> None:
    strikes = [
        *[WORKER] * 4,
        *rng.choices(SHARDS, k=3),
        GATEWAY_NAME,
        "member",
        stored(LOOSE_TABLE),
    ]
    rng.shuffle(strikes)
    copies = KilledCopies(connection, rng, None)
    try:
        found = copies.run(strikes)
    finally:
        copies.close()
    for topic in (SOURCE, TOPIC, LOOSE):
        connection.topics.delete(topic)
    check(found)


@pytest.mark.slow
def test_each_row_is_there_once_whatever_is_killed_for_long(tmp_path: Path, seed: int) -> None:
    """Agents and the whole node are among the victims, and tasks that are killed fail a query."""
    rng = Random(seed)
    strikes = [*rng.choices(ALL, k=STRIKES - 1), stored(LOOSE_TABLE)]
    command = [sys.executable, "-m", "support.spark.spark_kills", str(tmp_path), str(seed)]
    done = subprocess.run([*command, *strikes], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}, strikes {strikes}"
    sys.stdout.write(f"seed {seed}, strikes {strikes}: {done.stdout}\n")
    found = json.loads(done.stdout)
    check(found)


def check(found: dict[str, dict[str, int]]) -> None:
    """No copy lacks a row or has one of its own; those with a ledger have each of them once.

    Where one without a ledger does, too, no strike met what the ledger is for, and this proves less.
    """
    for name in COPIES:
        assert (found[name]["missing"], found[name]["strange"]) == (0, 0), found
        if name in (TOPIC, TABLE):
            assert found[name]["repeated"] == 0, f"{name}: {found}"
        elif not found[name]["repeated"]:
            sys.stderr.write(f"INCONCLUSIVE: no strike repeats a row of {name}: {found}\n")
