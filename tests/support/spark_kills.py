"""A copy of a topic by Spark whose driver, workers, gateways and shards are killed at random.

    python -m support.spark_kills DIRECTORY SEED STRIKES GUARANTEE [VICTIM …]

It prints what became of the rows as JSON: how many there are, are missing, and are there twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from support.fleet import pid_of, wait_until
from support.nemesis import NodeProcess, descendants
from support.staging import stored_bodies

from rocketray.actors.calls.endpoint import GATEWAY_NAME, SPARE_GATEWAY_NAME, process_actor
from rocketray.actors.client.connection import Connection

__all__ = ["VICTIMS"]

VICTIMS = ("driver", "worker", "gateway", "shard")
_ROWS_A_BATCH, _BATCHES_A_STRIKE = 2_000, 3
_STARTS_MAX = 200
_WORKER = "spark:worker\n"  # the workers of tasks, and their parent: warm_server.py


class Copy:
    """The driver of the copy, which is started again whenever it ends too early."""

    def __init__(self, directory: Path, data: Path, guarantee: str) -> None:
        self._arguments = [str(data), str(directory / "checkpoint"), guarantee, str(_ROWS_A_BATCH)]
        self._commits = directory / "checkpoint" / "commits"
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def step(self) -> bool:
        """Start the driver unless it runs; return whether it has ended with all rows."""
        if self._process is not None and self._process.poll() == 0:
            return True
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            assert self.starts < _STARTS_MAX, self._log.read_text()[-4000:]
            command = [sys.executable, "-m", "support.spark_copy", *self._arguments]
            with self._log.open("w") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return False

    def progress(self) -> int:
        return len([*self._commits.glob("[0-9]*")]) if self._commits.is_dir() else 0

    def kill(self) -> None:
        """Kill the program and its JVM at once, and all that they started."""
        assert self._process is not None
        for pid in (self._process.pid, *descendants(self._process.pid)):
            _kill(pid)
        self._process.wait(60)

    def workers(self) -> list[int]:
        """Return the forked workers of tasks."""
        assert self._process is not None
        found = [pid for pid in descendants(self._process.pid) if _name(pid) == _WORKER]
        return [pid for pid in found if any(pid in descendants(other) for other in found)]


def main(directory: str, seed: str, strikes: str, guarantee: str, *victims: str) -> None:
    """Copy the rows, with so many strikes on the way."""
    random, root = Random(seed), Path(directory)
    with NodeProcess(root) as node, Connection.open(node.data) as connection:
        rows = int(strikes) * _BATCHES_A_STRIKE * _ROWS_A_BATCH
        connection.topics.create("In", 2)
        connection.topics.create("Out", 4, queues_per_process=2)
        with connection.producer() as producer:
            producer.send_many("In", bodies=[b"%d" % row for row in range(rows)])
        copy = Copy(root, node.data, guarantee)
        done = _strike(copy, connection, random, int(strikes), victims or VICTIMS)
        while not copy.step():
            time.sleep(0.2)
        staged = node.data / "staged"
        wait_until(lambda: not [*staged.iterdir()], lambda: str([*staged.iterdir()]))
        found = stored_bodies(connection, "Out")
    sys.stdout.write(json.dumps(_verdict(found, rows) | {"strikes": done, "starts": copy.starts}))


def _strike(
    copy: Copy, connection: Connection, random: Random, strikes: int, victims: Sequence[str]
) -> Counter[str]:
    done: Counter[str] = Counter()
    seen = 0
    while sum(done.values()) < strikes and not copy.step():
        if copy.progress() <= seen:  # each strike is some time after a batch of its own
            time.sleep(0.02)
            continue
        seen = copy.progress()
        time.sleep(random.uniform(0, 0.6))
        victim = random.choice(victims)
        _hit(victim, copy, connection, random)
        done[victim] += 1
    return done


def _hit(victim: str, copy: Copy, connection: Connection, random: Random) -> None:
    match victim:
        case "driver":
            copy.kill()
        case "worker":
            workers = copy.workers()
            if workers:
                _kill(random.choice(workers))
        case "gateway":
            with suppress(Exception):  # it may have been killed a moment ago
                _kill(pid_of(random.choice((GATEWAY_NAME, SPARE_GATEWAY_NAME))))
        case _:
            config = connection.topics.get("Out")
            with suppress(Exception):
                _kill(pid_of(process_actor(config.process_of(random.randrange(config.queues)))))


def _verdict(found: Counter[str], rows: int) -> dict[str, int]:
    expected = {str(row) for row in range(rows)}
    return {
        "rows": rows,
        "missing": len(expected - found.keys()),
        "strangers": len(found.keys() - expected),
        "repeated": sum(count - 1 for count in found.values()),
    }


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
