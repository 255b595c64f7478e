"""Copies of a topic by Spark whose processes are killed at random while rows come in.

A driver (spark_copy.py) copies the topic ``In`` to one that a group's member and, at times, an app's
agents read (fleet.py), and from there to a table. Under the same strikes, it makes two copies
without a ledger. As a program this runs with a node of its own, and prints what it found as JSON:

    python -m support.spark.spark_kills DIRECTORY SEED STRIKE …
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from support.harness.patience import patience, wait_until
from support.harness.process_tree import descendants
from support.nodes.fleet import ACTORS, QUEUES, TOPIC, Fleet
from support.nodes.nemesis import Nemesis, NodeProcess
from support.nodes.staging import stored_bodies
from support.programs.spark_copy import COPIES, LOOSE, LOOSE_TABLE, SOURCE, TABLE

from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.actors.client.connection import Connection
from rocketray.broker.fetching.bounds import QueuePages
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, SPARE_GATEWAY_NAME

WORKER, _DRIVER = "worker", "driver"
SHARDS = tuple(name for name in ACTORS if ":" in name)
_GATEWAYS = (GATEWAY_NAME, SPARE_GATEWAY_NAME)

_STARTS_MAX = 10_000
_TRIES = 20
_ROWS_A_STRIKE = 400
_QUEUES = {SOURCE: 2, TOPIC: QUEUES, LOOSE: 1}
_LOOK_S = 0.002
_DELAY_S = 0.5  # a micro-batch of all copies takes as long
_MASTERS = ("local[2,4]", "local[2]")  # a task that is killed is tried again, or fails its query
_TASKS = "spark:worker\n"  # the workers of tasks, and their parent: warm_server.py


def stored(copy: str) -> str:
    """Return the strike at the driver when *copy* has a batch that its checkpoint has not."""
    return f"{_DRIVER} {copy}"


ALL = (
    *(_DRIVER, stored(TOPIC), stored(TABLE), WORKER, WORKER),
    *("member", "host", "node", *_GATEWAYS, *ACTORS),
)
"""What may be struck."""


class KilledCopies:
    """The copies, and the strikes at what makes them."""

    def __init__(
        self, connection: ConnectedClient, random: Random, node: NodeProcess | None
    ) -> None:
        """Make the topics, and the fleet; an app's hosts and the *node* may be struck if it is given."""
        self._connection, self._random = connection, random
        root = connection.data.parent
        directory = root / "copies" if node is None else root  # others may share the node
        self._fleet = Fleet(connection, random, queues_per_process=1, directory=directory)
        connection.topics.create(SOURCE, _QUEUES[SOURCE])
        connection.topics.create(LOOSE, _QUEUES[LOOSE])
        self._driver = _Driver(
            root, connection.data, random, _MASTERS[:1] if node is None else _MASTERS
        )
        self._nemesis = None if node is None else Nemesis(self._fleet, node, random, 0)
        self._sent = 0

    def run(self, strikes: Sequence[str]) -> dict[str, dict[str, int]]:
        """Strike while rows are copied; return what is missing, strange or repeated in each copy."""
        self._fleet.start_member()
        if {"host", "node"} & set(strikes):
            self._fleet.start_app()
        with self._connection.producer() as producer:
            self._send(producer)
            self._wait(partial(self._is_complete, TABLE))  # else the first strike would meet nobody
            for strike in strikes:
                self._send(producer)
                self._hit(partial(self._strike, strike), producer)
                self._wait(partial(self._is_complete, TOPIC))
            for copy in (LOOSE, LOOSE_TABLE):
                self._repeat(copy, producer)
        for name in COPIES:
            self._wait(partial(self._is_complete, name))
        self._wait(lambda: not any(self._fleet.missing().values()))
        self._wait(self._fleet.has_committed_all)
        return {name: self._verdict(name) for name in COPIES}

    def _hit(self, strike: Callable[[], bool], producer: NodeProducer) -> None:
        """Strike until somebody was met, while rows come in."""
        for _ in range(_TRIES):
            if strike():
                return
            self._send(producer)

    def _repeat(self, copy: str, producer: NodeProducer) -> None:
        """See that rows are repeated where no ledger is kept, so that the strikes mean something."""
        for _ in range(_TRIES):
            self._wait(partial(self._is_complete, copy))
            if self._verdict(copy)["repeated"]:
                return
            self._send(producer)
            self._hit(partial(self._kill_between, copy), producer)

    def _send(self, producer: NodeProducer) -> None:
        rows = range(self._sent, self._sent + _ROWS_A_STRIKE)
        producer.send_many(SOURCE, bodies=[b"%d" % row for row in rows])
        self._sent = rows.stop

    def close(self) -> None:
        """End all of it."""
        self._driver.kill()
        self._fleet.close()

    def _strike(self, strike: str) -> bool:
        """Strike while the last rows are copied; return False if the moment was missed."""
        kind, _, copy = strike.partition(" ")
        if copy in COPIES:
            return self._kill_between(copy)
        time.sleep(self._random.uniform(0, _DELAY_S))
        if kind == _DRIVER:
            self._driver.kill()
        elif kind == WORKER:
            return self._driver.kill_worker()
        elif kind == "member":
            self._fleet.kill_member()
        elif self._nemesis is not None:
            self._nemesis.strike(strike)
        else:
            self._fleet.kill_actor(strike)
        return True

    def _kill_between(self, copy: str) -> bool:
        """Kill the driver when a copy has rows that its checkpoint has not, if it is seen."""
        while not self._driver.kill_if(
            lambda: self._rows(copy) > self._driver.rows_read(COPIES[copy])
        ):
            self._driver.keep()
            if self._is_complete(TOPIC) and self._is_complete(copy):  # all that was sent is there
                return False
            time.sleep(_LOOK_S)
        return True

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Wait; start the driver again whenever it has ended."""

        def look() -> bool:
            self._driver.keep()
            return is_done()

        wait_until(look, lambda: f"{self._fleet.described()}\n{self._driver.said()}")

    def _is_complete(self, name: str) -> bool:
        return self._driver.rows_read(COPIES[name]) >= self._rows(COPIES[name])

    def _rows(self, name: str) -> int:
        """Return how many rows a copy, or the source, has now."""
        if name in (TABLE, LOOSE_TABLE):
            return sum(pq.read_metadata(file).num_rows for file in self._driver.files(name))
        pages = QueuePages(self._connection.data)
        found = [pages.find((name, queue)) for queue in range(_QUEUES[name])]
        return sum(held.visible for held in found if held is not None)

    def _verdict(self, name: str) -> dict[str, int]:
        if name in (TABLE, LOOSE_TABLE):
            tables = [pq.read_table(file, columns=["body"]) for file in self._driver.files(name)]
            found = Counter(body for table in tables for body in table["body"].to_pylist())
        else:
            found = stored_bodies(self._connection, name)
        expected = {str(row) for row in range(self._sent)}
        return {
            "rows": len(expected & found.keys()),
            "missing": len(expected - found.keys()),
            "strange": len(found.keys() - expected),
            "repeated": sum(count - 1 for count in found.values()),
        }


class _Driver:
    """The driver, which is started again whenever it ended, and its checkpoints and tables."""

    def __init__(self, root: Path, data: Path, random: Random, masters: Sequence[str]) -> None:
        self._root = root
        self._arguments = [str(data), str(root)]
        self._random, self._masters = random, masters
        self._log = root / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def keep(self) -> None:
        """Start it unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._starts += 1
        assert self._starts < _STARTS_MAX, self.said()
        master = self._random.choice(self._masters)
        command = [sys.executable, "-m", "support.programs.spark_copy", *self._arguments, master]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def said(self) -> str:
        """Return the end of what it said."""
        return self._log.read_text()[-4000:] if self._log.exists() else "it has not begun"

    def kill(self) -> None:
        """Kill the program and its JVM at once, and all that they started."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(patience(60))

    def kill_if(self, is_time: Callable[[], bool]) -> bool:
        """Kill it if it is time for that, also while it is stopped; return whether it was."""
        if not is_time():
            return False
        self._signal(signal.SIGSTOP)
        while not all(map(_is_stopped, self._processes())):  # a call of the system ends before
            time.sleep(_LOOK_S)
            self._signal(signal.SIGSTOP)  # one that was forked meanwhile got none
        if is_time():
            self.kill()
            return True
        self._signal(signal.SIGCONT)
        return False

    def kill_worker(self) -> bool:
        """Kill one of the forked workers of tasks; return False where there is none."""
        assert self._process is not None
        found = descendants(self._process.pid)
        named = [pid for pid in found if _name(pid) == _TASKS]
        workers = [pid for pid in named if any(pid in descendants(other) for other in named)]
        if workers:
            _signal(self._random.choice(workers), signal.SIGKILL)
        return bool(workers)

    def files(self, table: str) -> list[Path]:
        """Return the files of a table whose batches are committed."""
        found = []
        for directory, below, names in os.walk(self._root / "tables" / table):
            below[:] = [name for name in below if not name.startswith("_")]  # these come and go
            found += [Path(directory, name) for name in names if name.startswith("part-")]
        return [path for path in found if path.suffix == ".parquet"]

    def rows_read(self, topic: str) -> int:
        """Return how many rows the finished batches of the query on a topic have."""
        checkpoint = self._root / "checkpoints" / topic
        done = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
        if not done:
            return 0
        offset = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
        return sum(json.loads(offset)[topic].values())

    def _signal(self, number: int) -> None:
        for pid in self._processes():
            _signal(pid, number)

    def _processes(self) -> tuple[int, ...]:
        assert self._process is not None
        return self._process.pid, *descendants(self._process.pid)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _name(pid: int) -> str:
    return _about(pid, "comm")


def _is_stopped(pid: int) -> bool:
    """Return whether none of its threads runs, or it has ended."""
    threads = [
        _about(pid, f"task/{each.name}/stat") for each in Path(f"/proc/{pid}/task").glob("*")
    ]
    return all(said.rpartition(") ")[2][:1] in ("T", "Z", "") for said in threads)


def _about(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except OSError:
        return ""


def main(directory: str, seed: str, *strikes: str) -> None:
    """Run the copies with a node of their own."""
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(Path(directory)))
        connection = stack.enter_context(Connection.open(node.data))
        copies = KilledCopies(connection, Random(int(seed)), node)
        stack.callback(copies.close)
        try:
            found = copies.run(strikes)
        except BaseException:
            traceback.print_exc()  # Ray ends this process when its node is gone
            raise
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
