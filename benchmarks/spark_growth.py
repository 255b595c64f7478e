"""How the Spark source grows: rows a second and memory, over queues and messages.

    python benchmarks/spark_growth.py [--quick] [--rounds 3] [--output FILE]

Topics with 1, 4 and 16 queues have ten million messages each, as kafka.py has them; a batch reads
the first 10^5, 10^6 or all of them into Spark's noop sink. Each case is a program of its own, with
a session of two cores that has read 10^5 rows before. The memory is the most that was seen, every
tenth of a second, of the JVM and of all Python processes of Spark's; a page that several processes
share counts once. Pages of the log that they have mapped belong to the page cache, so they are
counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.broker.fetching.bounds import QueuePages
from rocketray.queries.spark.session import spark_session

_QUEUES = (1, 4, 16)
_ROWS = (100_000, 1_000_000, 10_000_000)
_SEND_ROWS = 100_000
_LEAN = "body binary, queueOffset bigint"
_MIB = 1024  # KiB
_SAMPLE_S = 0.1


@dataclass(frozen=True)
class Result:
    """A case: the median of its turns, and the most memory at a time, in MiB."""

    queues: int
    rows: int
    columns: str
    rows_per_s: float
    jvm_mib: float
    python_mib: float
    mapped_mib: float


def fill(data: Path, rows: int) -> None:
    """Send *rows* messages to each of the topics of a node, which then ends."""
    body = bytes(range(100))
    with Node(data, NodeOptions(num_cpus=2)) as node, node.connection() as connection:
        for queues in _QUEUES:
            connection.topics.create(_topic(queues), queues)
        with connection.producer() as producer:
            for first in range(0, rows, _SEND_ROWS):
                numbers = np.arange(first, min(rows, first + _SEND_ROWS))
                texts = pa.array(numbers).cast(pa.string())
                table = {
                    "body": pa.array([body] * len(numbers), pa.binary()),
                    "tags": pa.array(np.where(numbers % 100, "usual", "rare"), pa.string()),
                    "keys": texts,
                    "amount": pa.array(numbers % 1000).cast(pa.string()),
                    "region": pa.array(np.where(numbers % 2, "eu", "us"), pa.string()),
                }
                for queues in _QUEUES:
                    producer.send_many(
                        _topic(queues), pa.table(table), property_columns=["amount", "region"]
                    )


def _topic(queues: int) -> str:
    return f"Growth{queues}"


class Memory:
    """The most memory of Spark's processes, in KiB, as a thread sees it."""

    def __init__(self) -> None:
        self.jvm = self.python = self.mapped = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            jvm = python = mapped = 0
            for process in _descendants(os.getpid()):
                with suppress(OSError):  # it has ended meanwhile
                    command = (process / "comm").read_text().strip()
                    own, files = _sizes(process)
                    if command == "java":
                        jvm += own + files
                    else:
                        python, mapped = python + own, mapped + files
            self.jvm, self.python = max(self.jvm, jvm), max(self.python, python)
            self.mapped = max(self.mapped, mapped)
            time.sleep(_SAMPLE_S)


def _sizes(process: Path) -> tuple[int, int]:
    """Return the KiB of a process that are its own, and those of mapped files: its shares."""
    lines = (process / "smaps_rollup").read_text().splitlines()[1:]
    found = {
        name: int(value.split()[0]) for name, _, value in (one.partition(":") for one in lines)
    }
    return found["Pss_Anon"] + found["Pss_Shmem"], found["Pss_File"]


def _descendants(process_id: int) -> Iterator[Path]:
    for file in Path(f"/proc/{process_id}/task").glob("*/children"):
        with suppress(OSError):
            for child in file.read_text().split():
                yield Path("/proc", child)
                yield from _descendants(int(child))


def first_of(data: Path, queues: int, rows: int) -> dict[str, int]:
    """Return the ends of the queues of a topic for its first *rows* messages, about."""
    pages = QueuePages(data)
    found = [pages.find((_topic(queues), queue)) for queue in range(queues)]
    held = [0 if bounds is None else bounds.visible for bounds in found]
    return {str(queue): count * rows // sum(held) for queue, count in enumerate(held)}


def frame(
    session: SparkSession, data: Path, queues: int, ends: dict[str, int], columns: str
) -> DataFrame:
    """Return the messages of a topic up to *ends*."""
    reader = session.read.format("rocketray").option("data", str(data))
    reader = reader.option("topic", _topic(queues))
    reader = reader.option("endingOffsets", json.dumps({_topic(queues): ends}))
    return (reader.schema(_LEAN) if columns == "lean" else reader).load()


def batch_s(rows: DataFrame) -> float:
    """Return how long a batch takes."""
    begin = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def measure(data: Path, queues: int, rows: int, columns: str, rounds: int) -> Result:
    """Measure one case, in this process."""
    session = spark_session("growth")
    session.sparkContext.setLogLevel("ERROR")
    few = first_of(data, queues, min(rows, _ROWS[0]))
    batch_s(frame(session, data, queues, few, columns))
    memory = Memory()
    ends = first_of(data, queues, rows)
    times = [batch_s(frame(session, data, queues, ends, columns)) for _ in range(rounds)]
    session.stop()
    sizes = (memory.jvm / _MIB, memory.python / _MIB, memory.mapped / _MIB)
    return Result(queues, rows, columns, rows / statistics.median(times), *sizes)


def measured_apart(data: Path, rounds: int, sizes: tuple[int, ...]) -> Iterator[Result]:
    """Yield the result of each case, each of a program of its own."""
    for columns in ("all", "lean"):
        for queues in _QUEUES:
            for rows in sizes:
                case = [str(data), str(queues), str(rows), columns, str(rounds)]
                done = subprocess.run(
                    [sys.executable, __file__, "--case", *case], stdout=subprocess.PIPE, check=True
                )
                found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
                yield Result(**found)


def main() -> None:
    """Measure, print the table, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--case", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        data, queues, rows, columns, rounds = arguments.case
        result = measure(Path(data), int(queues), int(rows), columns, int(rounds))
        print(json.dumps(asdict(result)))
        return
    sizes, rounds = ((10_000, 20_000), 1) if arguments.quick else (_ROWS, arguments.rounds)
    results = []
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        fill(data, sizes[-1])
        print("columns queues       rows   rows/s  MiB: JVM  Python  mapped   load", flush=True)
        for one in measured_apart(data, rounds, sizes):
            begin = (
                f"{one.columns:>7} {one.queues:6} {one.rows:10,} {one.rows_per_s / 1000:6,.0f} k"
            )
            memory = f"{one.jvm_mib:10,.0f} {one.python_mib:7,.0f} {one.mapped_mib:7,.0f}"
            print(f"{begin} {memory} {os.getloadavg()[0]:6.1f}", flush=True)
            results.append(asdict(one) | {"load": os.getloadavg()[0]})
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
