"""How fast are 1 to 4 queues on 1 to 4 machines, and what processor time does a message take?

    PYTHONPATH=tests python benchmarks/machines.py [--quick] [--tls] [--output results.json] …

The machines are raylets of one Ray in namespaces (tests/support/nodes/machines_apart.py), each with
a node and a disk of one cluster. A sender and a receiver, a process each, are on the first machine.
Queue 0 of a topic is on the second machine, the next one on the next, and so on in a circle; so a
single queue is on another machine if there is one. The addresses are not on loopback, so the fetch
service speaks TLS. With ``--tls`` only consumption is measured, of queues that are all on other
machines: with TLS, and on addresses of loopback without.

Each round starts a cluster for each number of machines. In it each number of queues has a topic,
and each way is measured once; the tables have the medians of all rounds. Processor time is that of
the cluster's processes and of both programs; that of Ray's own processes is apart.

All of it has a network, process ids and shared memory of its own. It ends with this process, also
with Ctrl-C. That needs the rights of root, or user namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.harness.machine_figures import Cell, Figure, Place, parts_table, rates_table
from support.harness.process_use import ProcessUse
from support.nodes.disk_cluster import NAME, Cluster, cluster_of
from support.nodes.own_mounts import with_mounts

_TRAFFIC = Path(__file__).with_name("machines_traffic.py")
_SENDS = {"send_async": 150_000, "send_many": 400_000}
_READS = {"records": 1, "arrow": 5}  # groups, one after the other
_QUICK, _WARM_UP = 20, 10  # parts of the full amount
_MACHINES = (1, 2, 4)
_NETWORK, _LOOPBACK = "10.77.0.", "127.0.0."
_OWN_SPACES = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_OWN = (
    "mount -t tmpfs none /dev/shm; ip link set lo up; "
    f"for n in 2 3 4 5; do ip addr add {_NETWORK}$n/32 dev lo; done; "
)
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "OPENBLAS_NUM_THREADS": "1"}


class _Program:
    """A process of machines_traffic.py on the first machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_TRAFFIC), cluster.machines.address, NAME],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(cluster.machines.environ),
            text=True,
        )
        self.pid = self._process.pid

    def __call__(self, *call: object) -> Any:
        """Return the answer to a call."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, f"{call}: see the traceback above"
        return json.loads(said)

    def end(self) -> None:
        """End it in order."""
        self._process.communicate(timeout=60)


class _Bench:
    """The programs on a cluster of some machines."""

    def __init__(self, cluster: Cluster, arguments: argparse.Namespace, *, has_tls: bool) -> None:
        self._sender, self._receiver = _Program(cluster), _Program(cluster)
        self._known = {self._sender.pid: "sender", self._receiver.pid: "receiver"}
        self._disks = ["", *cluster.disks]
        self._has_tls = has_tls
        self._part = _QUICK if arguments.quick else 1
        self._sends = not arguments.tls

    def figures(self, queues: int) -> Iterator[Figure]:
        """Measure each way on a topic with so many queues."""
        topic = f"Rates{queues}"
        all_disks = self._disks if self._sends else self._disks[1:]
        disks = [all_disks[(number + self._sends) % len(all_disks)] for number in range(queues)]
        self._sender("create", topic, disks)
        for way, count in _SENDS.items():
            self._sender(way, topic, count // self._part // _WARM_UP)
        for way in _READS:
            self._receiver(way, topic, 1)
        place = Place(len(self._disks), queues, sum(map(bool, disks)), self._has_tls)
        for way, full in _SENDS.items():
            cell = Cell(place, way)
            count = full // self._part
            if self._sends:
                yield self._figure(cell, self._sender, count, count)
            else:
                self._sender(way, topic, count)
        stored = self._receiver("stored", topic)
        for way, groups in _READS.items():
            yield self._figure(Cell(place, way), self._receiver, groups * stored, groups)

    def _figure(self, cell: Cell, program: _Program, count: int, amount: int) -> Figure:
        load = os.getloadavg()[0]
        before = ProcessUse.now()
        wall_s = program(cell.way, f"Rates{cell.place.queues}", amount)
        used = ProcessUse.now().since(before, self._known)
        used_us = {part: 1e6 * used_s / count for part, used_s in used.by_part.items()}
        return Figure(cell, count / wall_s, used_us, load, used.others_s / used.wall_s)

    def close(self) -> None:
        """End the programs."""
        self._sender.end()
        self._receiver.end()


@contextmanager
def _bench(arguments: argparse.Namespace, machines: int, *, has_tls: bool) -> Iterator[_Bench]:
    addresses = _NETWORK if has_tls else _LOOPBACK
    with cluster_of(machines, addresses=addresses) as cluster, ExitStack() as running:
        bench = _Bench(cluster, arguments, has_tls=has_tls)
        running.callback(bench.close)
        yield bench


def _measure(arguments: argparse.Namespace) -> list[Figure]:
    """Measure all rounds, every second one in the opposite order; print each figure."""
    kinds = [
        (machines, has_tls)
        for machines in arguments.machines
        for has_tls in ((False, True) if arguments.tls else (True,))
    ]
    figures = []
    for round_number in range(arguments.rounds):
        for machines, has_tls in kinds[:: -1 if round_number % 2 else 1]:
            with _bench(arguments, machines, has_tls=has_tls) as bench:
                for queues in arguments.queues:
                    for figure in bench.figures(queues):
                        print(figure, flush=True)
                        figures.append(figure)
    return figures


def _in_own_spaces() -> int:
    """Run this program in namespaces of its own, which end with it; return its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    apart = with_mounts("several machines", _OWN, names=_OWN_SPACES)
    with tempfile.TemporaryDirectory(prefix="m-", ignore_cleanup_errors=True) as directory:
        process = subprocess.Popen(
            [*apart, sys.executable, __file__, *sys.argv[1:], "--inside"],
            env={**os.environ, **_SETTINGS, "TMPDIR": directory},
            start_new_session=True,  # Ctrl-C comes to this process alone
        )
        try:
            return process.wait()
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what runs in the namespaces: with their first process Linux ends all others."""
    with suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in map(int, children or [str(process.pid)]):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    """Measure, print each figure as it is known, then the table, and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument("--tls", action="store_true", help="fetch with TLS, and without")
    parser.add_argument("--machines", type=int, nargs="+", choices=_MACHINES)
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--output", type=Path, default=Path("machines-results.json"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.machines = arguments.machines or (_MACHINES[1:] if arguments.tls else _MACHINES)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    if arguments.tls and 1 in arguments.machines:
        parser.error("--tls is about other machines: --machines 2 4")
    if not arguments.inside:
        try:
            sys.exit(_in_own_spaces())
        except pytest.skip.Exception as reason:
            sys.exit(str(reason))
        except KeyboardInterrupt:
            sys.exit("interrupted; what it started has ended")
    figures = _measure(arguments)
    print("", *rates_table(figures), "", *parts_table(figures), sep="\n")
    rows = [asdict(figure) for figure in figures]
    arguments.output.write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
