"""Shards are read again while they work: at a rate, and what is found is a problem of the node."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support.harness.patience import patience
from support.nodes.stores import FakeClock, repair

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards import shard_threads
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_api import ScrubState
from rocketray.broker.shards.shard_problems import AHEAD_MAX_MS, UNFLUSHED_MAX_MS, problems_of
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.shards.shard_scrub import DiskScrub, ShardScrub
from rocketray.broker.shards.shard_threads import ShardThreads
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.message import Message
from rocketray.runtime.files.paths import shard_directory
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.recovery.problem import Problem
from rocketray.store.recovery.scrub import PASS_INTERVAL_MS
from rocketray.store.retention import DiskUse, RetentionPolicy

SIZES = {
    "commit_log_segment_bytes": 64 * 1024,
    "consume_queue_segment_entries": 100,
    "index_hash_slots": 100,
    "index_entries": 1000,
}
FILES = 5
FAST = 1 << 30


def store(shard: OwnedShard, files: int = FILES) -> None:
    """Store so many files of messages, and a little more, all on disk."""
    messages = [Message("T", b"x" * 4000, keys=[f"k{number}"]) for number in range(8)]
    batch = pack_batch(encode_messages(messages, born_host=("::1", 1), clock_ms=int))
    end = shard.writer.store.reads.max_physical_offset + files * SIZES["commit_log_segment_bytes"]
    while shard.writer.store.reads.max_physical_offset <= end:
        assert shard.writer.append(batch, Durability.MEMORY).status is AppendStatus.OK
    shard.writer.flush()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def process(tmp_path: Path, clock: FakeClock) -> Iterator[ShardProcess]:
    TopicCatalog().with_topic("T", 2, queues_per_process="shared").save(tmp_path)
    for queue_id in range(2):
        shard_directory(tmp_path, "T", queue_id).mkdir(parents=True)
    process = ShardProcess(tmp_path, "shared", SIZES, clock_ms=clock)
    for queue_id in range(2):
        store(process.shard("T", queue_id))
    yield process
    process.close()


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        old = file.read(1)
        file.seek(position)
        file.write(bytes([old[0] ^ 1]))


def scrubs_of(process: ShardProcess) -> list[ShardScrub]:
    return [process.shard("T", queue_id).scrub for queue_id in range(2)]


@pytest.mark.proves(
    "durability",
    "Reading again takes no page out of the cache and adds none, and holds its rate",
)
def test_the_budget_is_held(process: ShardProcess, rng: Random) -> None:
    """However long steps and waits take, at most a step is ahead of the rate."""
    now_s = 0.0
    rate = 100_000
    scrub = DiskScrub(lambda: scrubs_of(process), rate, now_s=lambda: now_s)
    while (pause_s := scrub.step()) is not None:
        done = sum(each.state().done_bytes for each in scrubs_of(process))
        assert done <= rate * (now_s + pause_s) + 1
        now_s += pause_s + rng.choice((0, 0.01, 3))
    assert now_s >= 2 * FILES * SIZES["commit_log_segment_bytes"] / rate


def test_a_pass_begins_a_day_after_the_last_one(process: ShardProcess, clock: FakeClock) -> None:
    scrub = DiskScrub(lambda: scrubs_of(process), FAST)
    waited = threading.Thread(target=scrub.wait, daemon=True)
    while scrub.step() is not None:
        pass
    waited.start()
    scrub.notice()
    assert waited.is_alive()
    for shard in scrubs_of(process):
        assert shard.state().verified_ms == clock.now_ms
    clock.now_ms += PASS_INTERVAL_MS
    scrub.notice()
    waited.join(patience(60))
    assert not waited.is_alive()


@pytest.mark.proves(
    "durability",
    "Damage in a complete log file of a running shard is found within one pass, and named until "
    "it is repaired",
)
def test_a_flip_in_a_cold_file_of_a_running_shard_is_a_problem_until_it_is_repaired(
    process: ShardProcess, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one pass, while the shard stores messages, and after it was opened again."""
    monkeypatch.setattr(shard_threads, "_DISK_INTERVAL_S", 0.05)
    directory = shard_directory(process.data, "T", 1)
    path = directory / "commitlog" / f"{2 * 64 * 1024:020d}"
    flip(path, 5000)
    running = threads(process)
    try:
        while not process.problems():
            store(process.shard("T", 1), files=1)
        ((subject, line),) = process.problems().items()
        while process.reports.scrubs()["T/1"].begun_ms is not None:
            store(process.shard("T", 0), files=1)
        assert [*process.problems()] == [subject] == ["T/1 damage"]
        assert f"{path} at " in line
        assert line.endswith(f"rocketray store recover {directory}")
        (problem,) = process.reports.scrubs()["T/1"].damage
        assert problem.offset <= 5000
    finally:
        running.stop()
    process.close()
    again = ShardProcess(process.data, "shared", SIZES, clock_ms=clock)
    assert again.problems() == {subject: line}
    again.close()
    repair(directory)
    again = ShardProcess(process.data, "shared", SIZES, clock_ms=clock)
    assert again.problems() == {}
    again.close()


def threads(process: ShardProcess) -> ShardThreads:
    return ShardThreads(process, flush_interval_s=0.05, scrub_rate=FAST, on_failure=lambda: None)


@pytest.mark.proves(
    "durability",
    "A healthy store that is written, and whose files are removed, has no damage",
)
def test_a_pass_over_a_healthy_shard_that_is_written_and_expired_finds_nothing(
    process: ShardProcess, rng: Random, caplog: pytest.LogCaptureFixture
) -> None:
    """Files are removed by retention and by compaction, and at last a queue moves away."""
    running = threads(process)
    try:
        rounds = itertools.count(1)
        while next(rounds) < 50 or process.reports.scrubs()["T/0"].verified_ms is None:
            store(process.shard("T", rng.randrange(2)), files=1)
            policy = RetentionPolicy(max_bytes=200_000)
            process.shard("T", 0).writer.expire(policy, None, DiskUse(0, 1 << 40))
            process.shard("T", 1).expire(RetentionPolicy(compacts=True), None)
        for queue_id in range(2):
            assert process.shard("T", queue_id).writer.store.reads.min_physical_offset > 0
        process.hand_over("T", 1)
        shutil.rmtree(shard_directory(process.data, "T", 1))
        store(process.shard("T", 0), files=1)
    finally:
        running.stop()
    assert process.problems() == {}
    assert not any(record.levelname == "WARNING" for record in caplog.records)


def test_a_closed_shard_is_read_no_more(process: ShardProcess) -> None:
    shard = process.shard("T", 0)
    process.remove("T")
    assert not shard.scrub.is_due()
    assert shard.scrub.step() == 0


def test_an_error_of_the_scrubber_leaves_the_shard_alone(
    process: ShardProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shard = process.shard("T", 0)
    monkeypatch.setattr(shard.scrub._scrubber, "step", lambda _end: 1 // 0)
    assert shard.scrub.step() == 0
    assert not shard.scrub.is_due()
    assert "is not verified any more" in caplog.text
    store(shard)


@pytest.mark.proves(
    "durability",
    "A flush that hangs, and store times ahead of the clock, are problems of the node",
)
def test_a_large_age_and_a_time_ahead_of_the_clock_are_problems() -> None:
    healthy = ScrubState("/data")
    place = ("T", 3)
    assert problems_of(place, UNFLUSHED_MAX_MS - 1, AHEAD_MAX_MS - 1, healthy) == {}
    found = problems_of(place, UNFLUSHED_MAX_MS, 3 * 86_400_000, healthy)
    assert [*found] == ["T/3 flush", "T/3 clock"]
    flush, ahead = found.values()
    assert flush.startswith("queue T/3: its oldest message that is not on disk was stored 10 s ago")
    assert "3 days ahead of this machine's clock" in ahead
    many = (Problem("commitlog/0", 90, "bad"),) * 5
    (line,) = problems_of(place, 0, 0, ScrubState("/data", damage=many)).values()
    assert line.count("/data/commitlog/0 at 90: bad") == 3
    assert "; and 2 more, shown by rocketray status --json;" in line


def test_a_shard_whose_clock_was_set_back_says_so(process: ShardProcess, clock: FakeClock) -> None:
    clock.now_ms += 3_600_000
    store(process.shard("T", 0), files=1)
    clock.now_ms -= 3_600_000
    assert [*process.problems()] == ["T/0 clock"]
    clock.now_ms += 3_600_000
    assert process.problems() == {}
