"""The steps that a node does by itself, and the time that passes."""

from __future__ import annotations

import contextlib
from math import inf

from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.groups.lease import SESSION_TIMEOUT_MS

from .parts import COORDINATOR, FILTER, process_part
from .world import EXPECTED, USER_TOPICS, Step, World


def filter_step(world: World) -> None:
    """Let the filter work."""
    with world.acting(FILTER):
        world.node.filter.step()


def serve(world: World) -> None:
    """Let the services work."""
    world.node.serve()


def flush(world: World) -> None:
    """Let a shard process flush."""
    name = world.any_process()
    if name is None:
        return
    world.flush_process(name)
    process = world.node.processes.get(name)
    for topic, queue_id in [*process._shards] if process else ():
        if topic in USER_TOPICS:
            world.history.flushed(topic, queue_id)


def rest(world: World) -> None:
    """Let the shards of a process come to rest that have everything on disk."""
    name = world.any_process()
    if name is not None:
        with world.acting(process_part(name)):
            for disk in world.node.processes[name]._disks.values():
                disk.keep_house(_come_to_rest)


def _come_to_rest(shard: OwnedShard) -> None:
    shard.writer.rest()


def prepare(world: World) -> None:
    """Let a shard process make its next files."""
    name = world.any_process()
    if name is not None:
        with world.acting(process_part(name)):
            for disk in world.node.processes[name]._disks.values():
                disk.keep_house(OwnedShard.prepare_next)


def open_closed(world: World) -> None:
    """Let the shard processes open closed shards again."""
    for name, process in [*world.node.processes.items()]:
        with world.acting(process_part(name)):
            process.open_closed(inf)


def save(world: World) -> None:
    """Let the coordinator save."""
    with world.acting(COORDINATOR):
        world.node.state.save()
    world.history.groups_saved()


def expire(world: World) -> None:
    """Let the shards remove old files, and compact."""
    with world.acting(COORDINATOR):
        orders = world.node.state.expiry_orders()
    for order in orders:
        part = process_part(order.topic.process_of(order.queue_id))
        with world.acting(part), contextlib.suppress(*EXPECTED):
            shard = world.node.shard(order.topic.name, order.queue_id)
            shard.expire(order.policy, order.needed_from)


def wait(world: World) -> None:
    """Let some time pass."""
    world.clock.advance(seconds=world.chance.choice((0.1, 0.5, 1, 3)))


def wait_long(world: World) -> None:
    """Let so much time pass that all leases end, or retention has to do with it."""
    world.clock.advance(seconds=world.chance.choice((SESSION_TIMEOUT_MS / 1000 + 1, 60, 2400)))


def write_back(world: World) -> None:
    """Let the system write some of what is not synced."""
    world.machine.files.write_back(world.chance)


def stop(world: World) -> None:
    """Stop the node, and start it again."""
    node = world.node
    for reader in world.readers:
        if reader.is_stopped:
            continue
        with world.acting(reader.part), contextlib.suppress(*EXPECTED):
            reader.member.close()
    if node.down:
        return  # a stop waits until they are back
    may_repeat = True
    open_places = [place for process in node.processes.values() for place in process._shards]
    closed = [place for process in node.processes.values() for place in process.closed()]
    try:
        node.close()
    except EXPECTED as error:
        world.log.append(f"the node cannot stop in order: {error}")
    else:
        for topic, queue_id in open_places:
            world.history.flushed(topic, queue_id)
        if not closed:
            world.history.all_safe()
            may_repeat = False
    world.forget(may_repeat=may_repeat)
    world.machine.release_locks()
    world.start()


STEPS: tuple[Step, ...] = (
    Step(filter_step, 18, 1),
    Step(serve, 10, 1),
    Step(flush, 6, 0.9),
    Step(rest, 2, 0.4),
    Step(prepare, 3, 0.7),
    Step(open_closed, 3, 1),
    Step(save, 4, 0.9),
    Step(expire, 4, 0.6),
    Step(wait, 10, 1),
    Step(wait_long, 1, 0.5),
    Step(write_back, 4, 0.8),
    Step(stop, 1, 0.6),
)
