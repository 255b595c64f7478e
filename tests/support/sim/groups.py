"""The steps of groups and queries: members come, work and go."""

from __future__ import annotations

import contextlib

from rocketray.broker.retries.retry_records import retry_topic
from rocketray.groups.lease import SESSION_TIMEOUT_MS

from .clients import Reader
from .history import FILTERS, Group
from .parts import FILTER, OPERATOR, process_part
from .senders import send
from .tables import ON_DISK
from .world import EXPECTED, ORDERS, QUEUES, Step, World

_READERS_MAX = 8


def join(world: World) -> None:
    """Let a member join a group."""
    if len(world.readers) >= _READERS_MAX:
        return
    if world.chance.random() < 0.15:
        join_broadcast(world)
        return
    if world.chance.random() < 0.2:
        join_with_table(world)
        return
    world.names += 1
    name = f"m{world.names}"
    number = world.chance.randrange(len(FILTERS))
    group = world.history.groups.get(f"g{number}")
    if group is None:
        group = Group(f"g{number}", ORDERS, FILTERS[number], fails=number < 2)
        world.history.groups[group.name] = group
    topic = group.topic
    retries = retry_topic(group.name)
    if retries in world.node.topic_service.all() and world.chance.random() < 0.5:
        topic = retries
    with world.acting(f"member:{name}"):
        world.readers.append(Reader(world.node, world.history, group, topic, name))


def join_broadcast(world: World) -> None:
    """Let the only client of the broadcast group join, which keeps its own offsets."""
    if any(reader.group.is_broadcast for reader in world.readers):
        return
    group = world.history.groups.setdefault(
        "all", Group("all", ORDERS, FILTERS[3], is_broadcast=True)
    )
    with world.acting("member:all"):
        world.readers.append(Reader(world.node, world.history, group, ORDERS, "all"))


def join_with_table(world: World) -> None:
    """Let an instance join the group that has a table, unless all run."""
    group = world.history.groups.setdefault(
        "counts", Group("counts", ORDERS, FILTERS[0], has_table=True)
    )
    running = {reader.name for reader in world.readers}
    for name, copies in world.copies.items():
        if name in running:
            continue
        if name != ON_DISK:
            copies.clear()
        with world.acting(f"member:{name}"):
            world.readers.append(
                Reader(world.node, world.history, group, ORDERS, name, copies=copies)
            )
        return


def poll(world: World) -> None:
    """Let a member take messages."""
    world.with_reader(lambda reader: reader.poll(world.chance.choice((1, 5, 100))))


def finish(world: World) -> None:
    """Let a member finish some."""
    world.with_reader(Reader.finish)


def beat(world: World) -> None:
    """Let all members send heartbeats."""
    _beat(world, 1.0)


def beat_some(world: World) -> None:
    """Let some members send heartbeats, and between them some that were delayed arrive."""
    _beat(world, 0.4)


def _beat(world: World, share: float) -> None:
    waiting = world.network.waiting
    for reader in [*world.readers]:
        if waiting and world.chance.random() < 0.3:
            waiting.pop(world.chance.randrange(len(waiting)))()
        if not (reader.is_silent or reader.is_stopped) and world.chance.random() < share:
            with world.acting(reader.part), contextlib.suppress(*EXPECTED):
                reader.member.beat()


def leave(world: World) -> None:
    """Let a member leave in order."""
    reader = world.any_reader()
    if reader is not None and not reader.is_stopped:
        world.readers.remove(reader)
        with world.acting(reader.part):
            reader.member.close()


def crash_reader(world: World) -> None:
    """Kill a member."""
    if reader := world.any_reader():
        world.readers.remove(reader)
        world.node.end_client(reader.part)


def silence(world: World) -> None:
    """Let the heartbeats of a member get lost, or arrive again."""
    if reader := world.any_reader():
        reader.is_silent = not reader.is_silent


def stop_reader(world: World) -> None:
    """Stop the process of a member with a table, between its look at the lease and the store.

    While one is stopped, let another one take its queues, or shards die, or the process go on.
    """
    if not any(reader.is_stopped for reader in world.readers):
        with contextlib.suppress(*EXPECTED):
            join_with_table(world)
        for reader in world.readers:
            reader.stop()
        _work_on_tables(world)
        return
    (step,) = world.chance.choices((_overtake, _restart_shards, go_on), (4, 3, 3))
    step(world)


def _overtake(world: World) -> None:
    world.clock.advance(seconds=SESSION_TIMEOUT_MS / 1000 + 1)
    with contextlib.suppress(*EXPECTED):
        join_with_table(world)
    for _ in range(3):
        beat(world)
        _work_on_tables(world)


def _work_on_tables(world: World) -> None:
    for _ in range(3):
        with contextlib.suppress(*EXPECTED):
            send(world, ORDERS)
    with contextlib.suppress(*EXPECTED), world.acting(FILTER):
        world.node.filter.step_to_the_end()
    for reader in world.readers:
        if reader.group.has_table and not reader.is_stopped:
            with contextlib.suppress(*EXPECTED), world.acting(reader.part):
                reader.poll(100)
                reader.finish()


def _restart_shards(world: World) -> None:
    for name in [*world.node.processes]:
        world.node.bury(process_part(name))
    world.revive()


def go_on(world: World) -> None:
    """Let the stopped processes go on."""
    for reader in world.readers:
        with contextlib.suppress(*EXPECTED), world.acting(reader.part):
            reader.go_on()


def move_offset(world: World) -> None:
    """Set a group's offset, as an operator does."""
    groups = [one for one in world.history.groups.values() if one.passed]
    if not groups:
        return
    group, queue_id = world.chance.choice(groups), world.chance.randrange(QUEUES)
    messages = world.history.there[group.topic, queue_id]
    end = max(messages, default=0)
    target = world.chance.randint(0, end)
    with world.acting(OPERATOR):
        group.skipped |= {(queue_id, offset) for offset in range(target)}
        group.moves[queue_id] = target
        group.moving.add(queue_id)
        world.node.groups.move_offsets(group.name, group.topic, {queue_id: target})


def query(world: World) -> None:
    """Let a query read on."""
    chosen = world.chance.choice(world.queries)
    with world.acting("query"):
        chosen.step(world.chance.randrange(QUEUES))


STEPS: tuple[Step, ...] = (
    Step(join, 4, 0.9),
    Step(poll, 25, 1),
    Step(finish, 25, 1),
    Step(beat, 10, 1),
    Step(beat_some, 12, 0.8),
    Step(leave, 1, 0.6),
    Step(crash_reader, 2, 0.6),
    Step(silence, 2, 0.5),
    Step(move_offset, 1, 0.4),
    Step(query, 5, 0.7),
    Step(stop_reader, 8, 0.3),
)
