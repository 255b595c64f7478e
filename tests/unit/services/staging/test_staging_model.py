"""Staged batches against a model: repetitions, two runs, calls that fail, and deaths at any step."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.amounts import examples

from rocketray.broker.retries.deliveries import Place
from rocketray.errors import ShardUnavailableError, StoreError
from rocketray.runtime.files.fragment_file import (
    BatchName,
    Fragment,
    FragmentFile,
    FragmentFrame,
    FragmentWriter,
    batch_of,
    new_fragment,
    read_frame,
)
from rocketray.services.staging.staging_api import StagedBatch
from rocketray.services.staging.staging_engine import StagingEngine, StagingLimits
from rocketray.services.staging.writer_ledger import WriterLedger, WriterState
from rocketray.store.age_clock import AgeClock
from rocketray.testing import Clock

QUEUES = 2


class Died(BaseException):
    """The process is gone."""


class Trouble:
    """Fails at random, once it is switched on."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.chance = 0.0

    def maybe(self) -> None:
        if self._random.random() < self.chance:
            raise Died if self._random.random() < 0.5 else ShardUnavailableError("x", "away", 1)

    def some(self, count: int) -> int:
        return self._random.randint(0, count) if self._random.random() < self.chance else count


class Topics:
    """Queues that look for what they have only if they are told that there is doubt."""

    def __init__(self, trouble: Trouble) -> None:
        self.queues: dict[Place, list[str]] = {}
        self._trouble = trouble

    def store(
        self, place: Place, fragment: Path, frames: Sequence[FragmentFrame], *, in_doubt: bool
    ) -> None:
        queue = self.queues.setdefault(place, [])
        for frame in frames:
            self._trouble.maybe()
            words = read_frame(fragment, frame).decode().split()
            new = [word for word in words if not in_doubt or word not in queue]
            stored = self._trouble.some(len(new))
            queue += new[:stored]
            if stored < len(new):
                raise Died
            self._trouble.maybe()


class FailingLedger(WriterLedger):
    """A ledger whose process may die before a save, or after it."""

    trouble: Trouble

    def save(self, state: WriterState) -> None:
        self.trouble.maybe()
        super().save(state)
        self.trouble.maybe()


class Job:
    """Two drivers with one checkpoint, and the node."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory, self.random = directory, random
        self.trouble = Trouble(random)
        self.topics = Topics(self.trouble)
        self.clock = Clock()
        self.restart()

    def restart(self) -> None:
        ledger = FailingLedger(self.directory / "writers")
        ledger.trouble = self.trouble
        while True:
            try:
                self.engine = StagingEngine(
                    self.directory / "staged",
                    ledger,
                    self.topics,
                    StagingLimits(fragment_ms=1 << 60),  # the files' own times are of another clock
                    clock=AgeClock(self.clock, self.clock.elapsed),
                )
            except (Died, ShardUnavailableError):
                continue
            return

    def stage(self, batch: BatchName) -> list[Fragment]:
        """Stage the messages of a batch, which are always the same, divided at random."""
        words = [f"{batch.number}-{row}" for row in range(5)]
        self.random.shuffle(words)
        fragments = []
        while words:
            count = self.random.randint(1, len(words))
            name = new_fragment(batch)
            writer = FragmentWriter(name, FragmentFile(self.directory / "staged", name))
            for word in words[:count]:
                writer.add("Out", self.random.randrange(QUEUES), word.encode(), 1)
            fragments.append(writer.finish())
            words = words[count:]
        return fragments

    def attempt(self, batch: BatchName, run: str) -> bool:
        """Stage a batch, and ask for its decision as a driver does; return whether it is decided."""
        fragments = self.stage(batch)
        if self.random.random() < 0.1:
            return False  # the driver was killed before it asked
        try:
            self.engine.decide(StagedBatch(batch, run, (*fragments,)))
        except Died:
            self.restart()
            return False
        except ShardUnavailableError:
            self.restart()  # as the service does after a save that failed
            if self.random.random() < 0.5:
                self.engine.drop(batch, [fragment.name for fragment in fragments])
            return False
        except StoreError:  # another run has replaced this one
            return False
        return self.random.random() < 0.9  # else the driver was killed before it knew

    def step(self) -> None:
        self.clock.advance(seconds=70)
        try:
            self.engine.step(self.clock())
        except (Died, ShardUnavailableError):
            self.restart()


@pytest.mark.proves(
    "spark",
    "The first decision about a batch counts, however a repetition divides its rows",
)
@given(st.integers(0, 1 << 32))
@examples(500)
def test_each_message_of_each_batch_is_stored_once(seed: int) -> None:
    random = Random(seed)
    memory = "/dev/shm"  # on a disk its thousand syncs take half a minute
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        job = Job(Path(directory), random)
        job.trouble.chance = 0.15
        runs, number, at = ["a"], 0, 0
        while number < 5 and at < 200:
            at += 1
            if random.random() < 0.1:
                runs.append(f"run{at}")  # another driver, or this one again
            if job.attempt(BatchName("job", number), random.choice(runs[-2:])):
                number += 1
            if random.random() < 0.7:
                job.step()
        job.trouble.chance = 0.0
        if number < 5:
            return  # two drivers that take turns may never finish
        for _ in range(20):
            job.step()
        found = Counter(word for queue in job.topics.queues.values() for word in queue)
        assert found == {f"{number}-{row}": 1 for number in range(5) for row in range(5)}
        for queue in job.topics.queues.values():
            batches = [word.split("-")[0] for word in queue]
            assert batches == sorted(batches), "of one writer, in the order of its decisions"
        left = [batch_of(path.name) for path in (Path(directory) / "staged").iterdir()]
        assert not left, "all that is not of a decision was dropped"
