"""A program that makes a history of real processes, and judges it: prints what it found as one object.

Its arguments are a directory, how many messages flow, a seed, and the strikes (nemesis.py).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

from support.harness.patience import wait_until
from support.models.history import verdict, violations
from support.nodes.fleet import FILTERS, PLAIN, Fleet
from support.nodes.nemesis import KILLS, Nemesis, NodeProcess

from rocketray.actors.client.connection import Connection

_FLOW_WAIT_S = 10.0
_WAIT_S = 300.0
_EXPLAINED = 6
_KILL_S, _PAUSE_S = 1, 12  # of messages for each strike


def main(directory: Path, messages: int, seed: int, strikes: Sequence[str]) -> None:
    """Let messages flow, strike, wait until all came, and judge."""
    random = Random(seed)
    seconds = sum(_KILL_S if kind in KILLS else _PAUSE_S for kind in strikes)
    pause_ms = 1_000_000 * seconds // messages  # after each thousand
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(directory))
        connection = stack.enter_context(Connection.open(node.data))
        fleet = Fleet(connection, random, queues_per_process=1)
        stack.callback(fleet.close)
        for group in (PLAIN, *FILTERS):
            fleet.start_member(group)
        fleet.start_app()
        fleet.start_producer(messages, pause_ms)
        nemesis = Nemesis(fleet, node, random, pause_ms)
        begin_s = time.monotonic()

        def tell(what: str) -> None:
            sys.stderr.write(f"{time.monotonic() - begin_s:.1f} s: {what}\n")

        for kind in strikes:
            await_flow(fleet, messages // (3 * len(strikes)))
            time.sleep(random.uniform(0, 0.5))
            tell(kind)
            nemesis.strike(kind)
        assert fleet.finish_producers(_WAIT_S) == 0
        tell("all is sent, and more follows")
        fleet.send_more(messages // 10)
        wait_until(
            lambda: not any(fleet.missing().values()),
            lambda: f"lost: {fleet.missing()}",
            within_s=_WAIT_S,
        )
        wait_until(fleet.has_committed_all, lambda: "offsets stay behind", within_s=_WAIT_S)
        tell("all is delivered and committed")
        history = fleet.history(fleet.explained(_EXPLAINED))
        found = violations(history)
        tell("judged")
        result = {
            "violations": found,
            "stored": sum(map(len, history.log.values())),
            "told": fleet.told(),
            "groups": {
                name: str(verdict(one, history.log)) for name, one in history.groups.items()
            },
            "chronicle": [fleet.chronicle(name) for name in history.groups if found],
        }
    sys.stdout.write(json.dumps(result) + "\n")


def await_flow(fleet: Fleet, messages: int) -> None:
    """Strike while messages flow, where the last strike lets them."""
    before = fleet.finished()

    def has_flowed() -> bool:
        fleet.see_offsets()
        return fleet.finished() >= before + messages

    with suppress(AssertionError):
        wait_until(has_flowed, within_s=_FLOW_WAIT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
