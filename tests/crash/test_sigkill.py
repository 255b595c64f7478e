"""A real writer process, killed at random: nothing acknowledged is missing, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from support.nodes.stores import SMALL, FakeClock, message, read_all

from rocketray.base.property_string import decode_properties
from rocketray.store.message_store import MessageStore

pytestmark = pytest.mark.proves("durability", "The death of a shard's process loses no message")

KILLS = int(os.environ.get("ROCKETRAY_TEST_KILLS", "20"))
KILLS_A_STORE = 10
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Promise:
    """What the writer was told: messages from ``first_number`` on have offsets from ``first`` on."""

    topic: str
    queue_id: int
    first: int
    first_number: int
    count: int


class Writer(NamedTuple):
    """The server of ``support.programs.store_writer``."""

    requests: IO[str]
    answers: IO[str]

    def write_until_killed(
        self, directory: Path, start: int, seed: int, delay_s: float
    ) -> list[Promise]:
        """Let a child write, and kill it *delay_s* after its first promise; at times while it opens."""
        self.requests.write(f"{directory} {start} {seed}\n")
        self.requests.flush()
        child = int(self.answers.readline())
        first = [self.answers.readline()] if seed % 4 else []
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
        promises = []
        for line in chain(first, iter(self.answers.readline, "end\n")):
            assert line, "the server died"
            if line.endswith("end\n"):  # the child was killed within a line
                break
            topic, *rest = line.split()
            promises.append(Promise(topic, *map(int, rest)))
        return promises


@contextmanager
def writer(scratch: Path) -> Iterator[Writer]:
    command = [sys.executable, "-m", "support.programs.store_writer", str(scratch)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Writer(process.stdin, process.stdout)
        process.stdin.close()


@pytest.mark.proves("producers", "No message acknowledged in memory is missing after SIGKILL")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(10 * KILLS, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_missing_after_sigkill(
    tmp_path: Path, seed: int, kills: int
) -> None:
    chance = random.Random(seed)
    promised: list[Promise] = []
    total = number = waited = 0
    with writer(tmp_path / "scratch") as server:
        for kill in range(kills):
            directory = tmp_path / f"store{kill // KILLS_A_STORE}"
            if kill % KILLS_A_STORE == 0:
                promised, number = [], 0
            delay_s = chance.uniform(0, 0.03)
            writer_seed = chance.randrange(100)
            waited += writer_seed % 4 > 0
            promises = server.write_until_killed(directory, number, writer_seed, delay_s)
            promised += promises
            total += len(promises)
            if promised:  # the last batch may have had no time to be told
                number = promised[-1].first_number + promised[-1].count + 100
            if directory.exists():
                check(directory, promised, kills=kill % KILLS_A_STORE + 1)
    assert total >= waited > 0


def check(directory: Path, promised: list[Promise], kills: int) -> None:
    """Open what the killed writer left, and again, and compare."""
    with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
        assert store.verify().problems == ()
        read = {queue: read_all(store, *queue) for queue in store.reads.queues()}
        for one in promised:
            for i in range(one.count):
                kept = read[one.topic, one.queue_id][one.first + i]
                sent = message(one.first_number + i, one.topic, len(kept.body))
                assert kept.body == sent.body
                assert kept.properties == decode_properties(sent.encoded_properties())
        stored = sum(map(len, read.values()))
        unspoken = stored - sum(one.count for one in promised)
        assert 0 <= unspoken <= kills * 13  # at most one batch a kill was stored and not told
    with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert store.statistics().messages == stored
