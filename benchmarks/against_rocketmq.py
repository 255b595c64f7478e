"""rocketray beside RocketMQ: the same questions to both in turns, and the table of the answers.

    PYTHONPATH=tests python benchmarks/against_rocketmq.py [--quick] [--rounds 5] [--write]

or ``make rocketmq``. ``--quick --rounds 1`` is for trying it.

RocketMQ's jars, and Jython, come from Maven. Name server, broker and node listen on loopback and
write to a temporary directory. On both sides the producer, the broker or node, and the consumer are
processes of their own: rocketmq_side.py drives RocketMQ's client from within its JVM,
rocketray_side.py ours. Where the two clocks cannot be the same, RocketMQ's is the shorter one: its
messages are made outside the clock, and its reading begins with the first message, ours with
joining the group.

The sides alternate after turns that warm up. Two turns are thrown away, and others measured, if
all other processes, the idle side among them, used more than ``--others`` cores meanwhile. A ratio
is the median of the ratios of adjacent turns, above 1 where rocketray is better: "ahead" from 1.1
on, "behind" below 1/1.1, else "level". ``--write`` puts the table into
docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import operator
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from support.harness.asked_process import AskedProcess
from support.harness.maven import maven_jars
from support.harness.source_tree import ROOT
from support.harness.turns import Figure, Result, Turn
from support.rocketmq.rocketmq import VERSION, Broker, NameServer, free_port, rocketmq_classpath

from rocketray.base.config import StoreConfig
from rocketray_bench.bench_node import descendants, processor_s

JYTHON = "2.7.4"
PAGE = ROOT / "docs/reference/performance.md"
BEGIN, END = "<!-- against RocketMQ: begin -->\n", "<!-- against RocketMQ: end -->\n"
QUEUES, IDLE_QUEUES = 4, 32
TOPICS = {"Back": QUEUES, "Scan": QUEUES, "Pace": QUEUES, "Idle": IDLE_QUEUES}
SQL = "amount BETWEEN 10 AND 20 AND region IN ('eu', 'us')"
_WARM_TURNS = 3
"""Turns before those that count, in which a JVM compiles what is used."""
_TRIES = 3
_BROKER_JAVA = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Side(Protocol):
    """One of the two systems."""

    name: str
    start_s: float
    producer: AskedProcess
    consumer: AskedProcess

    def servers(self) -> list[int]:
        """Return the processes of the broker or the node."""

    def idle(self, seconds: float) -> float:
        """Return what the broker or the node uses of a core while it has nothing to do."""


class RocketMQ:
    """RocketMQ's name server, broker, producer and consumer."""

    name = "RocketMQ"

    def __init__(self, work: Path, stack: ExitStack) -> None:
        jars = rocketmq_classpath()
        jython = maven_jars(f"jython-{JYTHON}", [f"org.python:jython-standalone:{JYTHON}"])
        begun = time.perf_counter()
        names = stack.enter_context(NameServer(jars, work))
        broker = Broker(
            jars,
            work,
            name="against",
            name_server=names.address,
            directory=work / "store",
            config=StoreConfig(
                commit_log_segment_bytes=1024**3,  # this and the next two as by RocketMQ's default
                index_hash_slots=5_000_000,
                index_entries=20_000_000,
                store_host=("127.0.0.1", free_port()),
            ),
            more={"defaultTopicQueueNums": QUEUES},
            java=_BROKER_JAVA,
        )
        stack.enter_context(broker)
        ready_s = time.perf_counter() - begun
        self._servers = [names.pid, broker.pid]
        java = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", f"-Duser.home={work}")
        main = "org.python.util.jython", str(Path(__file__).with_name("rocketmq_side.py"))
        command = (*java, "-cp", f"{jython}/*:{jars}", *main)
        self.producer = AskedProcess((*command, "producer", names.address), work)
        self.consumer = AskedProcess((*command, "consumer", names.address), work)
        stack.callback(self.consumer.close)
        stack.callback(self.producer.close)
        begun = time.perf_counter()
        self.producer.ask("first", topic="Load")
        self.start_s = ready_s + time.perf_counter() - begun
        for topic, queues in TOPICS.items():
            self.producer.ask("topic", name=topic, queues=queues)

    def servers(self) -> list[int]:
        """Return the processes of name server and broker."""
        return self._servers

    def idle(self, seconds: float) -> float:
        """Return what these use of a core."""
        before, begun = sum(map(processor_s, self._servers)), time.perf_counter()
        time.sleep(seconds)
        used = sum(map(processor_s, self._servers)) - before
        return used / (time.perf_counter() - begun)


class Rocketray:
    """A node, a producer and a plain member."""

    name = "rocketray"

    def __init__(self, work: Path, stack: ExitStack) -> None:
        work.mkdir()
        data, side = str(work / "data"), str(Path(__file__).with_name("rocketray_side.py"))
        command = (sys.executable, "-P", side)
        begun = time.perf_counter()
        self._node = AskedProcess((*command, "node", data), work)
        stack.callback(self._node.close)
        self._node.ask("topic", name="Load", queues=QUEUES)
        ready_s = time.perf_counter() - begun
        self.producer = AskedProcess((*command, "producer", data), work)
        stack.callback(self.producer.close)
        begun = time.perf_counter()
        self.producer.ask("first", topic="Load")
        self.start_s = ready_s + time.perf_counter() - begun
        self.consumer = AskedProcess((*command, "consumer", data), work)
        stack.callback(self.consumer.close)
        for topic, queues in TOPICS.items():
            self._node.ask("topic", name=topic, queues=queues)

    def servers(self) -> list[int]:
        """Return the processes of the node, Ray's own among them."""
        return [self._node.pid, *descendants(self._node.pid)]

    def idle(self, seconds: float) -> float:
        """Return what the node's processes use of a core, Ray's own among them."""
        used: float = self._node.ask("idle", seconds=seconds)["cores"]
        return used


@dataclass(frozen=True)
class Case:
    """A question to both sides."""

    figure: Figure
    measure: Callable[[Side], float]
    """Returns the value of a turn."""
    count: int = 0
    """How many messages a turn is about, for the processor time of each."""


def cases(backlogs: Mapping[str, int], scale: int) -> Iterator[Case]:
    """Return what is measured, in turns of a length of *scale*, with messages in *backlogs*."""

    def rate(count: int, do: str, **question: Any) -> Callable[[Side], float]:
        def measure(side: Side) -> float:
            asked = "lists" if do == "columns" and side.name == RocketMQ.name else do
            answer = side.producer.ask(asked, topic="Load", count=count, **question)
            stored: int = count - answer.get("failed", 0)  # a broker that is behind refuses some
            return stored / float(answer["seconds"]) / 1000

        return measure

    def p50(side: Side) -> float:
        return float(side.producer.ask("one", topic="Load", count=1000 * scale)["p50_us"])

    def read(
        topic: str, matching: int, tags: str = "*", sql: str | None = None
    ) -> Callable[[Side], float]:
        def measure(side: Side) -> float:
            question = {"topic": topic, "tags": tags, "sql": sql, "matching": matching}
            return backlogs[topic] / float(side.consumer.ask("read", **question)["seconds"]) / 1000

        return measure

    rates, count = partial(Figure, unit="k messages/s"), 1000 * scale
    yield Case(Figure("send one at a time, p50", "µs", is_less_better=True), p50, count)
    for do, size, count in (
        ("lists", 32, 3200 * scale),
        ("columns", 32, 3200 * scale),
        ("lists", 1024, 10240 * scale),
        ("columns", 1024, 10240 * scale),
    ):
        what = "as columns" if do == "columns" else "as messages"
        figure = rates(f"lists of {size:,}, each acknowledged, {what}")
        yield Case(figure, rate(count, do, size=size), count)
    count = 5000 * scale
    yield Case(rates("unbatched, acknowledgements later"), rate(count, "unbatched"), count)
    rows = backlogs["Back"]
    yield Case(rates("a backlog, message by message"), read("Back", rows), rows)
    rows = backlogs["Scan"]
    scans = partial(Figure, unit="k entries/s")
    yield Case(scans("1 % of a backlog by tag"), read("Scan", rows // 100, "rare"), rows)
    matching = sum(10 <= number % 1000 <= 20 for number in range(rows))
    yield Case(scans(f"a backlog by SQL92: `{SQL}`"), read("Scan", matching, sql=SQL), rows)
    for percentile in ("p50", "p99"):
        question = f"1,000 messages/s, from publishing to the handler, {percentile}"
        measure = partial(latency, count=250 * scale, figure=f"{percentile}_ms")
        yield Case(Figure(question, "ms", is_less_better=True), measure, 250 * scale)
    question = f"at rest, {IDLE_QUEUES} queues: broker or node"
    figure = Figure(question, "% of a core", is_less_better=True)
    yield Case(figure, lambda side: 100 * side.idle(scale))


def latency(side: Side, *, count: int, figure: str) -> float:
    """Return a figure of how long messages take to a consumer that runs."""
    side.consumer.ask("listen", topic="Pace")
    deadline = time.monotonic() + 60
    while not side.consumer.ask("heard", wait_s=0.3, clear=True)["count"]:
        side.producer.ask("paced", topic="Pace", count=1, interval_s=0.001)
        assert time.monotonic() < deadline, f"{side.name}: the consumer gets nothing"
    for warm in (True, False):
        messages = min(count, 500) if warm else count
        side.consumer.put("heard", wait_s=messages / 1000 + 1, clear=True)
        side.producer.ask("paced", topic="Pace", count=messages, interval_s=0.001)
        found = side.consumer.get()
    side.consumer.ask("leave")
    return float(found[figure])


def turn(case: Case, side: Side) -> Turn:
    """Measure once."""
    servers, clients = side.servers(), [side.producer.pid, side.consumer.pid]

    def used_s() -> tuple[float, float, float]:
        """Return what the servers, the clients and all processes of the machine have used."""
        return sum(map(processor_s, servers)), sum(map(processor_s, clients)), machine_s()

    before, begun = used_s(), time.perf_counter()
    value = case.measure(side)
    took_s = time.perf_counter() - begun
    of_servers, of_clients, of_all = map(operator.sub, used_s(), before)
    others = max(0.0, of_all - of_servers - of_clients) / took_s
    return Turn(value, 1e6 * of_servers / case.count if case.count else None, others)


def machine_s() -> float:
    """Return the processor seconds that all processes of the machine have used."""
    line, _, _ = Path("/proc/stat").read_text().partition("\n")
    user, nice, system, _, _, irq, softirq = map(int, line.split()[1:8])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def compare(case: Case, sides: tuple[Side, Side], rounds: int, others: float) -> Result:
    """Measure both sides in turns."""
    result, ours_first = Result(case.figure), True
    for side in sides * _WARM_TURNS:
        case.measure(side)
    tries = rounds * _TRIES
    while len(result.ours) < rounds and tries:
        tries -= 1
        pair = [turn(case, side) for side in (sides if ours_first else sides[::-1])]
        ours, theirs = pair if ours_first else pair[::-1]
        ours_first = not ours_first
        if max(ours.others, theirs.others) > others:
            result.disturbed += 1
            used = max(one.others for one in pair)
            print(
                f"{case.figure.question}: thrown away, as others used {used:.1f} cores", flush=True
            )
            continue
        result.ours.append(ours)
        result.theirs.append(theirs)
    return result


def table(results: Sequence[Result], sides: tuple[Side, Side], load: float) -> str:
    """Return the table with what it needs to be read."""
    ours, theirs = sides
    lines = [
        (
            f"RocketMQ {VERSION}, {time.strftime('%d %B %Y')}, load average {load:.1f} before, "
            f"{os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores, {platform.machine()}, "
            f"Python {platform.python_version()}."
        ),
        "",
        "| question | RocketMQ | rocketray | ratio | | turns | others |",
        "|---|---|---|---|---|---|---|",
        *map(Result.row, results),
        (
            f"| from the start to the first message stored, once | {theirs.start_s:.1f} s | "
            f"{ours.start_s:.1f} s | {theirs.start_s / ours.start_s:.2f} | | 1 | |"
        ),
    ]
    return "\n".join(lines) + "\n"


def write(text: str) -> None:
    """Put the table between its marks in the page."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has no line {BEGIN!r}"
    assert end, f"{PAGE} has no line {END!r}"
    PAGE.write_text(before + begin + text + end + after)


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same as --scale 1")
    parser.add_argument("--scale", type=int, default=20, help="how long a turn is")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--others", type=float, default=0.3, help="cores that others may use")
    parser.add_argument("--only", default="", help="questions with this text")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    arguments = parser.parse_args()
    scale = 1 if arguments.quick else arguments.scale
    backlogs = {"Back": 25_000 * scale, "Scan": 100_000 * scale}
    load, results = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory(prefix="against-") as directory, ExitStack() as stack:
        try:
            theirs = RocketMQ(Path(directory, "rocketmq"), stack)
        except pytest.skip.Exception as error:
            raise SystemExit(str(error)) from None
        ours = Rocketray(Path(directory, "rocketray"), stack)
        sides: tuple[Side, Side] = (ours, theirs)
        for side in sides:
            for topic, rows in backlogs.items():
                side.producer.ask("lists", topic=topic, count=rows, size=1000)
        for case in cases(backlogs, scale):
            if arguments.only in case.figure.question:
                results.append(compare(case, sides, arguments.rounds, arguments.others))
                print(results[-1].row(), flush=True)
        text = table(results, sides, load)
    print(text)
    if arguments.write:
        write(text)


if __name__ == "__main__":
    main()
