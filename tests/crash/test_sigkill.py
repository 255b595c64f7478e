"""A real writer process, killed at random: nothing acknowledged is missing, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.stores import FakeClock, check_whole, message, read_all

from rocketray.store.message_store import MessageStore

KILLS = int(os.environ.get("ROCKETRAY_TEST_KILLS", "10"))
TESTS = Path(__file__).parents[1]


def write_until_killed(directory: Path, start: int, seed: int, delay_s: float) -> list[str]:
    """Run the writer, kill it *delay_s* after its first acknowledgement; its whole lines."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "ROCKETRAY_PLAIN_KERNELS": "1" if seed % 3 else "0",  # the plain twins start much sooner
    }
    command = [sys.executable, "-m", "support.store_writer", str(directory), str(start), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(delay_s)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
    assert first, "the writer died before it wrote"
    return (first + rest).decode().rpartition("\n")[0].split("\n")


def test_nothing_acknowledged_is_missing_after_sigkill(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    promised: list[tuple[str, int, int, int, int]] = []
    directory = tmp_path / "store"
    number = 0
    for _ in range(KILLS):
        delay_s = chance.uniform(0, 0.05)
        lines = write_until_killed(directory, number, chance.randrange(100), delay_s)
        for line in lines:
            topic, *rest = line.split()
            queue_id, first, first_number, count = map(int, rest)
            promised.append((topic, queue_id, first, first_number, count))
        number = promised[-1][3] + promised[-1][4] + 100  # the last one may have had no time to say
        with MessageStore(directory, clock_ms=FakeClock()) as store:
            assert store.recovery is not None
            assert not store.recovery.was_clean
            stored = check_whole(store)
            read = {
                (topic, queue_id): read_all(store, topic, queue_id)
                for topic, queue_id in store.queues()
            }
            for topic, queue_id, first, first_number, count in promised:
                for i in range(count):
                    kept = read[topic, queue_id][first + i]
                    sent = message(first_number + i, topic, len(kept.body))
                    assert kept.body == sent.body
                    assert kept.properties == sent.stored_properties()
            unspoken = stored - sum(one[4] for one in promised)
            assert 0 <= unspoken <= KILLS * 13  # at most one batch a kill was stored and not said
        with MessageStore(directory, clock_ms=FakeClock()) as store:
            assert store.recovery is not None
            assert store.recovery.was_clean
            assert store.statistics().messages == stored
