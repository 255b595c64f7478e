"""rocketray beside the clients that Python users would pick, in turns, as users write it.

    PYTHONPATH=tests python benchmarks/python_peers.py [--quick] [--rows single later …]

or ``make peers``, which also makes the environment of the peers (peers_requirements.txt). Kafka's
broker comes from Maven. Broker and node listen on loopback and write to a temporary directory. A
topic has four partitions or queues. A message has a body of 100 bytes, a key and two headers or
properties, and ours a tag; an order is JSON of 96 bytes.

Each side of a row is a process of its own (peers_rocketray.py, peers_kafka.py). After a shorter
turn that warms up, the sides of a row alternate. The clocks begin with the first message, those of
readers of lists behind the first list; the processor time of a reader begins when it subscribes.
The clocks of a reader end with the last message, those of an app when it has stopped with all
committed. Processor time is that of all threads of the program, and that of the broker's process,
or of all processes of the node with Ray's. A ratio is the median of the ratios of adjacent turns,
above 1 where rocketray is better. "Ahead" is a row with both ratios from 1.1 on, "mixed" one with
one of them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from support.harness.asked_process import AskedProcess
from support.harness.maven import MavenError
from support.harness.peer_rows import HEAD, PeerResult, PeerTurn, row_without
from support.harness.process_use import ProcessUse
from support.rocketmq.kafka import BROKER, KafkaBroker

from rocketray_bench.bench_node import descendants

HERE = Path(__file__).parent
QUEUES = 4
TOPICS = ("Load", "Back", "Orders", "Out")
CONFLUENT, AIOKAFKA, QUIX = "confluent-kafka", "aiokafka", "quixstreams"
_MODULES = {CONFLUENT: "confluent_kafka", AIOKAFKA: "aiokafka", QUIX: "quixstreams"}
_OURS = "rocketray"
_WARM_UP = 4  # the part of a turn's messages
_BEHIND = 20_000  # messages behind those of a turn, so that no list waits to be full
_QUICK = 4000


@dataclass(frozen=True)
class Peer:
    """What a user would write instead: a way of peers_kafka.py, and its name in the table."""

    client: str
    way: str
    named: str


@dataclass(frozen=True)
class Row:
    """A way of peers_rocketray.py, its name in the table, and what stands beside it."""

    way: str
    named: str
    peers: tuple[Peer, ...]
    part: float = 1.0
    """Of the messages of a turn."""


_REPORTED = Peer(CONFLUENT, "reported", "confluent-kafka, `produce` with reports")
_QUIX_VALUES = Peer(QUIX, "quix_values", "Quix, `sdf.update`")
_QUIX_METADATA = Peer(QUIX, "quix_metadata", "Quix, `sdf.update(…, metadata=True)`")
_FLUSH = Peer(CONFLUENT, "single", "confluent-kafka, `flush` after each")
ROWS = (
    Row("single", "`producer.send`", (_FLUSH,), 0.05),
    Row("later", "`producer.send_async`, results awaited later", (_REPORTED,)),
    Row(
        "oneway",
        "`producer.send_oneway`",
        (Peer(CONFLUENT, "unreported", "confluent-kafka, `produce` without reports"),),
    ),
    Row("lists-1024", "`send_many`, lists of 1,024 `rr.Message`", (_REPORTED,)),
    Row("lists-32", "`send_many`, lists of 32 `rr.Message`", (_REPORTED,)),
    Row(
        "messages",
        "`batch.messages()`: body, keys, tag, two properties",
        (
            Peer(CONFLUENT, "consumed", "confluent-kafka, `consume(1024)`"),
            Peer(CONFLUENT, "polled", "confluent-kafka, `poll`"),
            Peer(AIOKAFKA, "many", "aiokafka, `getmany`"),
        ),
    ),
    Row(
        "values",
        "agent over `rr.Record` values",
        (_QUIX_VALUES, Peer(AIOKAFKA, "loop_values", "aiokafka, `async for`, `json.loads`")),
    ),
    Row("events", "agent over `stream.events()`", (_QUIX_METADATA,), 0.5),
    Row("items", "agent over `stream.items()`", (_QUIX_METADATA,), 0.5),
    Row("take", "agent over `stream.take(100, …)`", (_QUIX_VALUES,)),
    Row("table", "agent: a table's counter", (Peer(QUIX, "quix_state", "Quix, state"),), 0.25),
    Row(
        "out",
        "agent: `await topic.send(value=…)`",
        (
            Peer(QUIX, "quix_out", "Quix, `to_topic`"),
            Peer(AIOKAFKA, "loop_out", "aiokafka, `await producer.send`"),
        ),
        0.25,
    ),
    Row(
        "group_by",
        "agent: `stream.group_by(Order.region)`",
        (Peer(QUIX, "quix_group_by", "Quix, `sdf.group_by`"),),
        0.25,
    ),
)


@dataclass(frozen=True)
class System:
    """A node or a broker that runs, and the command of its programs."""

    command: Sequence[str]
    servers: Callable[[], list[int]]
    work: Path

    def program(self) -> AskedProcess:
        """Start a program."""
        return AskedProcess(self.command, self.work)


def rocketray(work: Path, stack: ExitStack) -> System:
    """Start a node, and create its topics."""
    data = str(work / "data")
    command = (sys.executable, "-P")
    side = str(HERE / "rocketray_side.py")
    node = stack.enter_context(AskedProcess((*command, side, "node", data), work))
    for topic in TOPICS:
        node.ask("topic", name=topic, queues=QUEUES)
    program = (*command, str(HERE / "peers_rocketray.py"), data)
    return System(program, lambda: [node.pid, *descendants(node.pid)], work)


def kafka(work: Path, stack: ExitStack, python: Path) -> System:
    """Start a broker, whose topics appear when they are used."""
    broker = stack.enter_context(KafkaBroker(work / "kafka", QUEUES))
    program = (str(python), "-P", str(HERE / "peers_kafka.py"), broker.address)
    return System(program, lambda: [broker.pid], work)


def look_for_clients(python: Path) -> tuple[list[str], dict[str, str]]:
    """Return the clients with their versions, and of those that are not there the reasons."""
    if shutil.which("java") is None:
        return [], dict.fromkeys(_MODULES, "there is no java on the path")
    if not python.exists():
        return [], dict.fromkeys(_MODULES, "there is no environment of the peers; run make peers")
    found, reasons = [], dict[str, str]()
    for client, module in _MODULES.items():
        script = f"import {module}, importlib.metadata as m; print(m.version({client!r}))"
        done = subprocess.run(
            [str(python), "-P", "-c", script], capture_output=True, text=True, check=False
        )
        if done.returncode:
            reasons[client] = done.stderr.strip().splitlines()[-1]
        else:
            found.append(f"{client} {done.stdout.strip()}")
    if reason := reasons.get(CONFLUENT):  # which fills the topics of all
        return [], dict.fromkeys(_MODULES, reason)
    return found, reasons


def turn(program: AskedProcess, system: System, way: str, count: int) -> PeerTurn:
    """Measure once."""
    looks = list[ProcessUse]()
    program.put("turn", way=way, count=count)
    try:
        answer = program.get(begun=lambda: looks.append(ProcessUse.now()))
    except RuntimeError as error:
        raise RuntimeError(f"{way}, {count} messages: {error}") from None
    before, after = *looks, ProcessUse.now()
    server_s = sum(
        after.by_process.get(pid, 0.0) - before.by_process.get(pid, 0.0) for pid in system.servers()
    )
    others_s = after.machine_s - before.machine_s - server_s - answer["processor_s"]
    messages = answer["first"] + answer["seen"]
    return PeerTurn(
        rate=answer["seen"] / answer["seconds"],
        program_us=1e6 * answer["processor_s"] / messages,
        server_us=1e6 * server_s / messages,
        load=os.getloadavg()[0],
        others=max(0.0, others_s / (after.at_s - before.at_s)),
        p50_us=answer.get("p50_us"),
    )


def measure(
    programs: Mapping[str, tuple[System, str]], *, count: int, rounds: int
) -> dict[str, list[PeerTurn]]:
    """Measure a way of each system in turns, forwards and backwards; return the turns of each."""
    turns: dict[str, list[PeerTurn]] = {name: [] for name in programs}
    with ExitStack() as stack:
        running = {name: stack.enter_context(one.program()) for name, (one, _) in programs.items()}
        for number in range(rounds + 1):
            for name in [*programs] if number % 2 else [*programs][::-1]:
                system, way = programs[name]
                if number == 0:
                    turn(running[name], system, way, count // _WARM_UP)
                else:
                    turns[name].append(turn(running[name], system, way, count))
    return turns


def lines_of(
    row: Row, ours: System, theirs: System | None, reasons: Mapping[str, str], **amounts: int
) -> Iterator[str]:
    """Measure a row beside its peers; yield a line of the table for each."""
    programs = {_OURS: (ours, row.way)}
    if theirs is not None:
        there = [peer for peer in row.peers if peer.client not in reasons]
        programs |= {peer.named: (theirs, peer.way) for peer in there}
    turns = measure(programs, **amounts)
    for peer in row.peers:
        if reason := reasons.get(peer.client):
            yield row_without(row.named, turns[_OURS], peer.named, reason)
        else:
            yield PeerResult(turns[_OURS], turns[peer.named]).row(row.named, peer.named)


def main() -> None:
    """Measure, and print each row when it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument(
        "--messages", type=int, default=200_000, help="of a turn; of slow rows less"
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    ways = [row.way for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=ways, metavar="ROW", help=", ".join(ways))
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers"), help="their environment")
    arguments = parser.parse_args()
    messages, rounds = (_QUICK, 1) if arguments.quick else (arguments.messages, arguments.rounds)
    python = arguments.peers.absolute() / "bin/python"
    found, reasons = look_for_clients(python)
    with tempfile.TemporaryDirectory(prefix="peers-") as directory, ExitStack() as stack:
        ours, theirs = rocketray(Path(directory), stack), None
        if found:
            try:
                theirs = kafka(Path(directory), stack, python)
            except MavenError as error:
                found, reasons = [], dict.fromkeys(_MODULES, f"no broker: {error}")
        for system in filter(None, (ours, theirs)):
            with system.program() as program:
                program.ask("turn", way="fill", count=messages + _BEHIND)
        skipped = [f"{client} is skipped: {reason}" for client, reason in reasons.items()]
        print("; ".join((f"Kafka {BROKER}", *found, *skipped)), end=".\n")
        print(
            f"{time.strftime('%d %B %Y')}; {messages:,} messages, {rounds} turns; {os.cpu_count()} "
            f"cores, {platform.machine()}, Python {platform.python_version()}.\n\n{HEAD}",
            flush=True,
        )
        for row in ROWS:
            if arguments.rows is None or row.way in arguments.rows:
                count = int(messages * row.part)
                for line in lines_of(row, ours, theirs, reasons, count=count, rounds=rounds):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
