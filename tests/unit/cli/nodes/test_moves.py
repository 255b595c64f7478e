"""What commands that move queues print meanwhile, and at the end."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disks_api import MovedQueue
from rocketray.broker.topics.placement import QueueMove
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.nodes import moves
from rocketray.cli.terminal import progress
from rocketray.runtime.files.home import Home

FAR = "00000000-0000-0000-0000-000000000002"
HOMES = {
    "": Home("/here", "00000000-0000-0000-0000-000000000001", "m1"),
    FAR: Home("/far", FAR, "m2"),
}
MB = 1_000_000


class Disks:
    """The coordinator, as it answers during the copy of each queue."""

    def __init__(self) -> None:
        self._answers: list[MovedQueue | RoundProgress] = []

    def move(self, *_: object) -> MovedQueue | RoundProgress:
        """Answer the next call about a move."""
        if not self._answers:
            self._answers = [
                RoundProgress(),
                RoundProgress(850 * MB, 3400 * MB),
                MovedQueue(3400 * MB, 10.0, 0, 0.25),
            ]
        return self._answers.pop(0)


def test_a_move_shows_the_part_of_its_bytes_that_is_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    connection: Any = SimpleNamespace(disks=Disks())
    wanted = [("Trade", QueueMove(queue_id, "", FAR)) for queue_id in (1, 4)]
    moves._carry_out(connection, HOMES, wanted, CommonOptions(as_json=True))
    said = capsys.readouterr()
    steps = [line.partition(" s  ")[2] for line in said.err.splitlines()]
    assert steps == [
        step
        for what in ("move 1 of 2, queue Trade/1", "move 2 of 2, queue Trade/4")
        for step in (what, f"{what}: comparing with its copy", f"{what}: 25 % of 3,400 MB copied")
    ]
    done = [json.loads(line) for line in said.out.splitlines()]
    assert [(each["queue"], each["copiedBytes"]) for each in done] == [
        (1, 3400 * MB),
        (4, 3400 * MB),
    ]
