"""A shard that dies while it drains a ring: each frame is in the log once, whatever it had done."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from oracles import drain
from support.harness.patience import wait_until
from support.programs.shard_process import open_writer

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.message import Message
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch

KILLS = int(os.environ.get("ROCKETRAY_TEST_KILLS", "10"))
TESTS = Path(__file__).parents[1]
STEPS = [
    "_write_slot",
    "append_records",
    "append_queue_entries",
    "put_keys",
]


class Killed(BaseException):
    """The process ends here."""


def payload(first: int, count: int) -> bytes:
    messages = [Message("Topic", b"%d" % n, keys=[f"k{n}"]) for n in range(first, first + count)]
    return pack_batch(encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1))


def check(writer: ShardWriter, ring: ProducerRing, counts: list[int]) -> None:
    """Every frame is acknowledged, and its messages are where the acknowledgement says, once."""
    total = sum(counts)
    assert [int(message.body) for message in writer.store.reads.scan()] == list(range(total))
    assert writer.store.reads.max_queue_offset("Topic", 0) == total == writer.control.visible()
    assert ring.acknowledged() == len(counts)
    first = 0
    for sequence, count in enumerate(counts, 1):
        ack = ring.ack(sequence)
        assert (ack.status, ack.first_queue_offset, ack.messages) == (AppendStatus.OK, first, count)
        assert int(writer.store.reads.view(ack.first_physical_offset).body) == first
        assert len(writer.store.reads.query("Topic", f"k{first}")) == 1
        first += count


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_drain_that_ends_between_two_steps_is_taken_up_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int, is_done: bool
) -> None:
    writer = open_writer(tmp_path / "shard")
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    counts = [3, 1, 4, 2, 5]
    ring.try_write(payload(0, 3), Durability.MEMORY)
    ring.publish()
    writer.rings.drain()  # makes the files, so that the kernel takes the rest
    for number, count in enumerate(counts[1:], 1):
        ring.try_write(payload(sum(counts[:number]), count), Durability.MEMORY)
    ring.publish()
    real, calls = getattr(drain, step), 0

    def fail(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls < call:
            return real(*arguments)
        if is_done:
            real(*arguments)
        raise Killed

    monkeypatch.setattr(drain, step, fail)
    monkeypatch.setattr("rocketray.broker.shards.shard_appends.drain_frames", drain.drain_frames)
    with pytest.raises(Killed):
        writer.rings.drain()
    monkeypatch.undo()
    writer.store.close()  # the store knows that it is damaged, so this is no clean end

    successor = open_writer(tmp_path / "shard")
    assert successor.store.recovery is not None
    assert not successor.store.recovery.was_clean
    successor.rings.attach_ring(ring.path)
    successor.rings.drain()
    check(successor, ring, counts)
    successor.close()


def is_over(shard: subprocess.Popen[bytes], ring: Path) -> bool:
    """Whether the process has ended or dropped the ring."""
    return shard.poll() is not None or not ring.exists()


@pytest.mark.proves(
    "durability",
    "A frame that changes while it is drained is stored whole or refused; a ring that is cut "
    "meanwhile costs the process at most",
)
@pytest.mark.parametrize("attempts", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_ring_that_is_cut_while_it_is_drained_costs_the_process_at_most(
    tmp_path: Path, seed: int, attempts: int
) -> None:
    """It ends by SIGBUS, or drops the ring; the next one has what was stored, and goes on."""
    chance = random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "support.programs.shard_process", str(tmp_path / "shard")]
    codes, stored = [], 0
    for attempt in itertools.count():
        if attempt >= attempts and (attempts == 1 or -signal.SIGBUS in codes or attempt > 200):
            break
        ring = ProducerRing(tmp_path / owned_name(f"r{attempt}"))
        with subprocess.Popen(
            [*command, str(ring.path)], env=environment, stdout=subprocess.PIPE
        ) as shard:
            assert shard.stdout is not None
            assert shard.stdout.readline() == b"up\n"
            sent = stored
            while ring.try_write(payload(sent, 100), Durability.MEMORY) is not None:
                sent += 100
            ring.publish()
            time.sleep(chance.uniform(0, 0.003))
            os.truncate(ring.path, 4096)  # what was acknowledged is in the page that is left
            wait_until(partial(is_over, shard, ring.path))
            codes.append(shard.poll())
            shard.kill()
        ring.path.unlink(missing_ok=True)
        with closing(open_writer(tmp_path / "shard")) as writer:
            found = [int(message.body) for message in writer.store.reads.scan()]
            assert found == list(range(len(found)))
            assert writer.store.reads.max_queue_offset("Topic", 0) == len(found)
            assert stored + 100 * ring.acknowledged() <= len(found) <= sent
        stored = len(found)
    assert set(codes) <= {None, -signal.SIGBUS}


@pytest.mark.proves(
    "producers",
    "A shard that is killed during a batch completes the batch, and does not repeat it",
)
def test_a_killed_shard_stores_every_frame_once(tmp_path: Path, seed: int) -> None:
    """The shard is killed at random while this process sends; the next one takes over."""
    chance = random.Random(seed)
    ring = ProducerRing(tmp_path / owned_name("r"), 64 * 1024)
    counts: list[int] = []
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    arguments = [str(tmp_path / "shard"), str(ring.path)]
    command = [sys.executable, "-m", "support.programs.shard_process", *arguments]
    for _ in range(KILLS // 2):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as shard:
            assert shard.stdout is not None
            assert shard.stdout.readline() == b"up\n"
            for _ in range(chance.randrange(100)):
                count = chance.randrange(1, 20)
                frame = payload(sum(counts), count)
                if ring.try_write(frame, chance.choice([*Durability])) is None:
                    ring.wait_acknowledged(ring.acknowledged() + 1, 0.01)
                else:
                    counts.append(count)
                    ring.publish()
            shard.send_signal(signal.SIGKILL)
    writer = open_writer(tmp_path / "shard")
    writer.rings.attach_ring(ring.path)
    writer.rings.drain()
    total = sum(counts)
    assert [int(message.body) for message in writer.store.reads.scan()] == list(range(total))
    assert writer.store.reads.max_queue_offset("Topic", 0) == total == writer.control.visible()
    assert ring.acknowledged() == len(counts)
    last = ring.ack(len(counts))
    assert (last.status, last.first_queue_offset) == (AppendStatus.OK, total - counts[-1])
    writer.close()
