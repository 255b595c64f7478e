"""Lives of a node without Ray, each killed at one of its system calls by strace.

The life is that of a whole node in one process, whose steps are below: topics, messages, groups,
transactions, a delay, a deletion, a stop. One thread does it all, so the number of a call is the
same point of each life. The node's directory is left as a coordinator and shards that are killed at
that call leave it.

This is a server, because starting Python costs more than a life: it forks a child for each. A line
of its input is a JSON object: ``data``, the node's directory; ``inject``, what strace does to the
child; ``trace``, the file for the calls; ``copies``, where a child that is not killed leaves a copy
of the directory after each step. A directory that is there already is opened and closed again,
which is a life of recovery. The answer is the number of steps that were answered.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from support.harness.patience import patience, wait_until

from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.runtime.files.home import settle_identity
from rocketray.store.retention import RetentionPolicy
from rocketray.testing import Broker, Clock, stepped_node
from rocketray.testing.clock import START_MS

TOPICS = ("Kept", "Gone")
LATER_MS = START_MS + 3_600_000
"""When a node starts again: later than all that its life ordered."""
_CALLS = (
    "openat", "rename", "renameat2", "link", "symlink", "unlink", "unlinkat", "mkdir", "rmdir",
    "fsync", "fdatasync", "msync", "ftruncate", "fallocate", "write", "pwrite64", "chmod", "flock",
)  # fmt: skip
_SIZES = {
    "commit_log_segment_bytes": 1 << 14,
    "consume_queue_segment_entries": 8,
    "index_hash_slots": 10,
    "index_entries": 20,
}
_EVEN, _LARGE = Subscription.tags("even"), Subscription.sql("amount >= 3")
_PR_SET_PTRACER = 0x59616D61  # <linux/prctl.h>; -1 lets strace, which is no parent, trace us
_WAIT_S = 60.0


class Life:
    """A node, its producer and its members."""

    def __init__(self, data: Path) -> None:
        data.mkdir(mode=0o700, exist_ok=True)
        settle_identity(data)
        self.broker = Broker(data)
        self._producer = self.broker.producer(group="payers", check=lambda _: "unknown")

    def send(self, topic: str, *numbers: int, queue_id: int = 0, size: int = 0) -> None:
        """Store numbers in one batch: even ones have the tag ``even``, each has its amount."""
        sent = [
            Message(
                topic,
                b"%d" % number + b"." * size,
                "odd" if number % 2 else "even",
                (f"key{number}",),
                {"amount": str(number)},
            )
            for number in numbers
        ]
        self._producer.send_many(topic, sent, queue_id=queue_id, ack="disk")

    def delay(self, number: int) -> None:
        """Send a number that is delivered after a minute."""
        self._producer.send("Kept", b"%d" % number, queue_id=0, delay_level=5)

    def decide(self, number: int, *, is_committed: bool) -> None:
        """Send a number in a transaction."""
        transaction = self._producer.begin()
        self._producer.send("Kept", b"%d" % number, queue_id=1, transaction=transaction)
        if is_committed:
            transaction.commit()
        else:
            transaction.rollback()

    def join(self, client_id: str, group: str, subscription: Subscription) -> None:
        """One more member."""
        self.broker.consumer(group, "Kept", subscription, client_id=client_id)

    def read(self) -> None:
        """Have all members read and report, and the coordinator save."""
        for _ in range(3):
            for member in self.broker.members():
                for batch in member.poll():
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
            self.broker.clock.advance(seconds=6)

    def leave(self, group: str) -> None:
        """The oldest member of a group leaves."""
        self.broker.members(group)[0].close()

    def stop(self) -> None:
        """Stop the node."""
        self._producer.close()
        self.broker.node.state.stop()
        self.broker.close()


def _expire(life: Life) -> None:
    life.broker.topics.set_retention("Kept", RetentionPolicy(max_bytes=1 << 14))
    life.broker.clock.advance(seconds=11)


STEPS: tuple[Callable[[Life], object], ...] = (
    lambda life: life.broker.topics.create("Kept", 2),
    lambda life: life.broker.topics.create("Gone", 1, queues_per_process="shared"),
    lambda life: life.send("Kept", 0, 1, 2),
    lambda life: life.send("Gone", 3),
    lambda life: life.join("one", "evens", _EVEN),
    lambda life: life.join("two", "large", _LARGE),
    lambda life: life.read(),
    lambda life: life.send("Kept", 4, 5, 6, 7, queue_id=1),
    lambda life: life.join("three", "evens", _EVEN),
    lambda life: life.read(),
    lambda life: life.decide(8, is_committed=True),
    lambda life: life.decide(9, is_committed=False),
    lambda life: life.leave("evens"),
    lambda life: life.broker.groups.move_offsets("evens", "Kept", {0: 0}),
    lambda life: life.broker.clock.advance(seconds=6),
    lambda life: life.read(),
    lambda life: life.broker.topics.alter("Kept", 3),
    lambda life: life.broker.topics.set_permission("Gone", 4),
    lambda life: life.broker.topics.delete("Gone"),
    lambda life: life.broker.topics.create("Gone", 1, queues_per_process="shared"),
    lambda life: life.send("Kept", 20, 21, size=6000),
    lambda life: life.send("Kept", 22, 23, size=6000),
    lambda life: life.send("Kept", 24, 25, size=6000),
    lambda life: life.read(),
    _expire,
    lambda life: life.delay(10),
    lambda life: life.leave("large"),
    lambda life: life.broker.groups.delete("large"),
    lambda life: life.stop(),
)


def _live(data: Path, answered: mmap.mmap, copies: str = "") -> None:
    """Count the answered steps, without a system call."""
    if data.exists():
        with Broker(data, clock=Clock(LATER_MS)):
            answered[0] = 1
        return
    life = Life(data)
    for number, step in enumerate(STEPS, 1):
        step(life)
        answered[0] = number
        if copies:
            shutil.copytree(data, Path(copies, str(number)))


def _killed(data: Path, inject: str, trace: str, copies: str) -> int:
    """Fork a child that lives below strace; return how many of its steps were answered."""
    answered = mmap.mmap(-1, mmap.PAGESIZE)
    gate, opened = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, -1)
            os.read(gate, 1)
            _live(data, answered, copies)
        finally:
            os._exit(0)
    options = [
        "-f",
        "-y",
        "-qq",
        "-o",
        trace,
        "-e",
        f"trace={','.join(_CALLS)}",
        "-e",
        "signal=none",
    ]
    if inject:
        options += ["-e", f"inject={inject}"]
    watcher = subprocess.Popen(["strace", *options, "-p", str(child)])
    status = Path(f"/proc/{child}/status")
    wait_until(lambda: "TracerPid:\t0\n" not in status.read_text())
    os.write(opened, b"x")
    os.waitpid(child, 0)
    watcher.wait(patience(_WAIT_S))
    os.close(gate)
    os.close(opened)
    return answered[0]


def main() -> None:
    """Answer until the input ends."""
    with patch.dict(stepped_node._SIZES, _SIZES):
        with tempfile.TemporaryDirectory(dir=sys.argv[1]) as warm:  # what is compiled now is there
            _live(Path(warm, "life"), mmap.mmap(-1, mmap.PAGESIZE))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for line in sys.stdin:
            asked = json.loads(line)
            steps = _killed(Path(asked.pop("data")), **asked)
            sys.stdout.write(f"{steps}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
