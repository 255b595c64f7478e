"""The steps that fail: power, processes, syncs, space, calls and clocks."""

from __future__ import annotations

import contextlib

from rocketray.errors import TopicNotFoundError

from .machine import KilledError, PowerLostError
from .parts import COORDINATOR, OPERATOR
from .world import BULK, ORDERS, PRICES, SHORT, NodeKilledError, Step, World

_SYNCED = ("commitlog", "commitlog", "consumequeue")
"""The directories of a shard whose syncs fail."""


def lose_power(world: World) -> None:
    """Lose the power at one of the next calls, or now."""
    if world.chance.random() < 0.3:
        world.machine.fail(PowerLostError)
        raise PowerLostError
    world.machine.light(world.chance.randrange(1, 80), PowerLostError)


def kill_part(world: World) -> None:
    """Kill the part that makes one of the next calls."""
    world.machine.light(world.chance.randrange(1, 60), KilledError)


def kill_node(world: World) -> None:
    """Kill all processes of the node."""
    world.machine.fail(KilledError)
    raise NodeKilledError


def fail_syncs(world: World) -> None:
    """Let the syncs of one shard fail until the disk is exchanged."""
    if world.broken:
        world.broken.clear()
        world.repair()
    else:
        topic = world.chance.choice((ORDERS, BULK, PRICES))
        world.broken.add(f"/{topic}/0/{world.chance.choice(_SYNCED)}")


def fill_disk(world: World) -> None:
    """Leave no room on the disk, or some again."""
    world.machine.is_full = not world.machine.is_full


def lose_calls(world: World) -> None:
    """Lose calls and answers, and repeat heartbeats, or let all be well again."""
    if world.network.losing:
        world.network.losing = world.network.repeating = 0.0
    else:
        world.network.losing, world.network.repeating = 0.2, 0.3
    world.history.may_repeat()


def step_clock(world: World) -> None:
    """Set the wall clock."""
    world.history.clock_jumped = True
    seconds = world.chance.choice((-86_400, -3_600, -5, 5, 3_600, 4 * 86_400, 365 * 86_400))
    world.clock.jump(seconds=seconds)
    world.log.append(f"the clock jumps by {seconds} s")


def delete_topic(world: World) -> None:
    """Delete a topic, and make it again; something may fail meanwhile."""
    if world.chance.random() < 0.5:
        how = world.chance.choice((KilledError, PowerLostError))
        world.machine.light(world.chance.randrange(1, 40), how)
    topic = world.node.topic_service.all().get(SHORT)
    if topic is not None and COORDINATOR not in world.node.down:
        world.deleting = topic.topic_id
    with contextlib.suppress(TopicNotFoundError), world.acting(OPERATOR):
        world.node.topics.delete(SHORT)
    world.create_topics()


STEPS: tuple[Step, ...] = (
    Step(lose_power, 3, 0.8),
    Step(kill_part, 3, 0.6),
    Step(kill_node, 1, 0.6),
    Step(fail_syncs, 5, 0.25),
    Step(fill_disk, 1, 0.2),
    Step(lose_calls, 4, 0.3),
    Step(step_clock, 3, 0.4),
    Step(delete_topic, 4, 0.4),
)
