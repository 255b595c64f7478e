"""The end of a run: all is healed, and everybody has to get what was promised."""

from __future__ import annotations

import contextlib

from rocketray.broker.retries.retry_records import dead_letter_topic, retry_topic
from rocketray.services.explaining.inquiry import inquire

from .clients import Reader
from .groups import beat, go_on, join_broadcast, join_with_table
from .senders import answer_checks, send
from .tables import Copy, recover
from .upkeep import open_closed, serve
from .world import EXPECTED, ORDERS, QUEUES, World

_ROUNDS_MAX, _QUIET_ROUNDS = 40, 4
_ADVANCES_MAX = 8
_LAST_MESSAGES = 8  # what failures lost must not hide what comes after them
_LONGEST_MS = 1_300_000  # two redeliveries of a message take that long


def heal(world: World) -> None:
    """Let all be well again: then everything has to come to its end."""
    world.log.append("heal")
    world.machine.snuff()
    world.machine.is_full = False
    world.broken.clear()
    world.network.losing = world.network.repeating = 0.0
    for transaction, _ in world.open_transactions:
        transaction.close()
    world.open_transactions.clear()
    world.revive()
    world.repair()
    world.create_topics()
    open_closed(world)
    for reader in world.readers:
        reader.is_silent = reader.will_stop = False
    world.act(go_on)
    for _ in range(_LAST_MESSAGES):
        world.act(send)
    last_ms = max((sent.due_ms for sent in world.history.sent.values()), default=0)
    world.clock.set(max(world.clock(), last_ms))  # it may have been set back
    for advance in range(_ADVANCES_MAX):
        world.clock.advance(seconds=700)
        quiet, at_first = 0, world.history.progress
        for _ in range(_ROUNDS_MAX):
            before = world.history.progress
            _calm_round(world)
            quiet = quiet + 1 if before == world.history.progress else 0
            if quiet >= _QUIET_ROUNDS and _all_have_owners(world):
                break
        is_late = world.clock() > last_ms + _LONGEST_MS
        if advance and is_late and world.history.progress == at_first:
            break  # what met a queue that was closed in the first rounds was tried again
    world.scan(must_be_open=True)
    world.check()
    _check_queries(world)
    _check_tables(world)
    world.history.check_end(_dead_letters(world))
    _check_explanations(world)


def _all_have_owners(world: World) -> bool:
    """Whether each queue of each group has a member that reads it."""
    held: dict[tuple[str, str], int] = {}
    for reader in world.readers:
        place = reader.group.name, reader.topic
        held[place] = held.get(place, 0) + len(reader.member.assignment())
    topics = world.node.topic_service.all()
    return all(
        held.get((group.name, topic), 0) >= topics[topic].queues
        for group in world.history.groups.values()
        for topic in (group.topic, retry_topic(group.name))
        if topic in topics and not (group.is_broadcast and topic != group.topic)
    )


def _calm_round(world: World) -> None:
    world.clock.advance(seconds=1)
    _fill_groups(world)
    for step in (serve, answer_checks, serve, beat):
        world.act(step)
    for name in [*world.node.processes]:
        world.flush_process(name)
    open_closed(world)
    world.node.filter.step_to_the_end()
    for reader in [*world.readers]:
        try:
            with world.acting(reader.part):
                reader.poll(1000)
                for _ in range(20):
                    reader.finish()
        except EXPECTED as error:
            world.log.append(f"{reader.name} fails, and its process ends: {error}")
            world.readers.remove(reader)
            world.node.end_client(reader.part)
    world.node.filter.sweep()


def _fill_groups(world: World) -> None:
    """See that each group has a member on each of its topics."""
    topics = world.node.topic_service.all()
    for group in world.history.groups.values():
        if group.is_broadcast:
            with contextlib.suppress(*EXPECTED):
                join_broadcast(world)
            continue
        if group.has_table:
            with contextlib.suppress(*EXPECTED):
                join_with_table(world)
            continue
        for topic in (group.topic, retry_topic(group.name)):
            has_one = any(r.group is group and r.topic == topic for r in world.readers)
            if topic in topics and not has_one:
                world.names += 1
                name = f"m{world.names}"
                with contextlib.suppress(*EXPECTED), world.acting(f"member:{name}"):
                    reader = Reader(world.node, world.history, group, topic, name)
                    world.readers.append(reader)


def _check_queries(world: World) -> None:
    for query in world.queries:
        for queue_id in range(QUEUES):
            query.step(queue_id)
        query.check_end()


def _check_tables(world: World) -> None:
    for group in world.history.groups.values():
        if group.has_table:
            for queue_id in range(QUEUES):
                copy = Copy()
                recover(world.node, queue_id, copy)
                world.history.check_table(group, queue_id, copy.content, to_the_end=True)


def _check_explanations(world: World) -> None:
    node, history = world.node, world.history
    messages = [*history.there[ORDERS, 0].values(), *history.there[ORDERS, 1].values()]
    for group in history.groups.values():
        for number in world.chance.sample(messages, min(2, len(messages))):
            found = inquire(node, history.message_ids[number], group.name)
            history.check_explained(group, number, found.cause)


def _dead_letters(world: World) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name in world.history.groups:
        topic = dead_letter_topic(name)
        if topic in world.node.topic_service.all():
            letters = world.node.stored(topic)
            found[name] = {world.history.known(one).number for one in letters}
    return found
