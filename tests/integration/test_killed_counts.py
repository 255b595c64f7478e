"""A program that counts in a table, and is killed again and again while it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.harness.commands import COMMAND, ONE_PROCESS
from support.harness.patience import patience, wait_until

import rocketray as rr

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.proves(
        "groups",
        "A count in a table of a program that is killed again and again has each message, and "
        "no more than were handled",
    ),
]
_KEYS, _ROUNDS, _EACH = 7, 6, 400

# A line is in the file before the message counts, and one behind it: no kill takes either.
COUNTING = """
import os
import rocketray as rr

app = rr.App("counting")
words = app.topic("words", key_type=str, value_type=str, queues=2)
counts = app.Table("counts", default=int, partitions=2)

@app.agent(words)
async def count(stream):
    with open(f"seen-{os.getpid()}", "a", buffering=1) as seen:
        async for word, value in stream.items():
            print("begun", word, file=seen)
            counts[word] += 1
            print(value, word, counts[word], file=seen)

if __name__ == "__main__":
    app.main()
"""


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A node's directory, beside the program."""
    (tmp_path / "counting.py").write_text(COUNTING)
    command = [COMMAND, "start", "--data", str(tmp_path / "data"), "--json", *ONE_PROCESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as node:
        assert node.stdout
        assert node.stdout.readline()
        yield tmp_path / "data"
        node.send_signal(signal.SIGTERM)
        assert node.wait(patience(90)) == 0


def seen(directory: Path, what: str) -> list[list[str]]:
    """The lines of all its processes that begin with that word, without it."""
    lines = [line for path in directory.glob("seen-*") for line in path.read_text().splitlines()]
    return [rest for word, *rest in map(str.split, lines) if word == what]


def _has_counted(directory: Path, count: int) -> bool:
    return len(seen(directory, "word")) > count


def test_a_count_has_each_message_and_no_more_than_was_handled(data: Path) -> None:
    """What was not committed is handled again: it counts once more only if it was stored before."""
    directory = data.parent
    environ = {**os.environ, "ROCKETRAY_DATA": str(data)}
    begin = partial(subprocess.Popen, [sys.executable, "counting.py"], cwd=directory, env=environ)
    with rr.Client(data=data) as client, client.producer() as producer:
        client.topics.ensure("words", 2)
        program = begin()
        try:
            for _ in range(_ROUNDS):
                before = len(seen(directory, "word"))
                for number in range(_EACH):
                    producer.send_async("words", b"word", sharding_key=f"key-{number % _KEYS}")
                wait_until(partial(_has_counted, directory, before + _EACH // 3))
                program.kill()
                program.wait()
                program = begin()
            for number in range(_KEYS):
                producer.send("words", b"last", sharding_key=f"key-{number}")
            wait_until(lambda: len({key for key, _ in seen(directory, "last")}) == _KEYS)
        finally:
            program.kill()
            program.wait()
    begun = Counter(key for [key] in seen(directory, "begun"))
    sent = Counter(f"key-{number % _KEYS}" for number in range(_EACH))
    for key, count in seen(directory, "last"):
        assert _ROUNDS * sent[key] + 1 <= int(count) <= begun[key]
