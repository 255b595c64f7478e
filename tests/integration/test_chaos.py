"""Members, app hosts, coordinator, filter and shards are killed while messages flow.

Three groups read one topic: plain members, an app's agent that keeps order, and one that does not;
both agents fail at times. Nothing is lost, order is kept where it is promised, and what comes twice
is what a killed process had not committed (tests/support/verdict.py).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from support.fleet import ACTORS, GROUPS, ORDERED, PLAIN, TOPIC, Fleet, wait_until
from support.verdict import out_of_order

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions

MESSAGES = int(os.environ.get("ROCKETRAY_TEST_CHAOS_MESSAGES", "10000"))
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600 + MESSAGES // 40)]
KINDS = ["member", "leave", "host", *ACTORS]
FLOW_WAIT_S = 10.0
PAUSE_S = 0.5
WAIT_S = 300.0


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with Node(tmp_path / "data", NodeOptions(num_cpus=2)) as node, node.connection() as connection:
        yield connection


def strike(fleet: Fleet, kind: str) -> None:
    match kind:
        case "member":
            fleet.kill_member()
        case "host":
            fleet.kill_host()
        case "leave":
            fleet.start_member()
            assert fleet.leave_member() == 0
        case _:
            fleet.kill_actor(kind)


def await_flow(fleet: Fleet, messages: int) -> None:
    """Strike while messages flow, where the last strike lets them."""
    before, end = fleet.missing(messages)[PLAIN], time.monotonic() + FLOW_WAIT_S
    while before - fleet.missing(messages)[PLAIN] < messages // 33 and time.monotonic() < end:
        time.sleep(0.1)


@pytest.mark.long(reason="five processes are killed while messages flow")
@pytest.mark.parametrize(
    ("messages", "strikes"),
    [
        (MESSAGES, 5),  # of kinds that the seed chooses
        pytest.param(10 * MESSAGES, len(KINDS) + 2, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_and_no_queue_loses_its_order(
    connection: Connection,
    messages: int,
    strikes: int,
    rng: Random,
    *,
    seed: int,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    struck: list[str] = []
    with ExitStack() as stack:
        fleet = Fleet(connection, rng, queues_per_process=1)
        stack.callback(fleet.close)
        fleet.start_member()
        fleet.start_member()
        fleet.start_app()
        pause_ms = int(strikes * 1000 / (messages / 1000))
        producer = fleet.start_producer(messages, pause_ms)
        stack.callback(producer.wait)
        stack.callback(producer.kill)
        kinds = rng.sample(KINDS, len(KINDS)) + rng.choices(KINDS, k=strikes)
        for kind in kinds[:strikes]:
            await_flow(fleet, messages)
            time.sleep(rng.uniform(0, PAUSE_S))
            struck.append(kind)
            strike(fleet, kind)
        assert producer.wait(WAIT_S) == 0, f"the producer fails with seed {seed} after {struck}"
        assert fleet.acknowledged() == list(range(messages))
        wait_until(
            lambda: not any(fleet.missing(messages).values()),
            lambda: f"lost: {fleet.missing(messages)} with seed {seed} after {struck}",
            WAIT_S,
        )
        stored = [one.max_queue_offset for one in connection.shard_statistics(TOPIC)]
    assert sum(stored) == messages, "the log has each once"
    verdicts = fleet.judge(messages)
    disorder = {group: out_of_order(fleet.journals.entries[group]) for group in (PLAIN, ORDERED)}
    with capsys.disabled():
        sys.stdout.write(f"\n{messages} messages, seed {seed}, struck {struck}\n")
        for group in GROUPS:
            record_property(group, str(verdicts[group]))
            order = disorder.get(group, "allowed")
            sys.stdout.write(f"  {group}: {verdicts[group]}, out of order {order}\n")
            if verdicts[group].unexplained:
                sys.stdout.write(fleet.chronicle(group) + "\n")
    assert [found.unexplained for found in verdicts.values()] == [0, 0, 0]
    assert all(found.twice <= found.bound for found in verdicts.values())
    assert disorder == {PLAIN: 0, ORDERED: 0}
