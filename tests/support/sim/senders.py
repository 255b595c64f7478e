"""The steps of senders: messages of each kind, and transactions."""

from __future__ import annotations

from typing import Any

from rocketray.base.ack_mode import AckMode, durability_of
from rocketray.errors import ShardUnavailableError, TransactionDecidedError

from .history import Sent, WrongError
from .world import BULK, ORDERS, PRICES, QUEUES, Step, World

_ACKS: tuple[AckMode, ...] = ("memory", "memory", "disk")


def send(world: World, topic: str | None = None) -> None:
    """Send one message, by default to any topic, and wait for its acknowledgement."""
    _send(world, world.new(topic))


def send_list(world: World) -> None:
    """Send a list to one queue."""
    topic = world.chance.choice((ORDERS, ORDERS, BULK))
    sent = [world.new(topic) for _ in range(world.chance.randrange(2, 12))]
    queue_id = world.chance.randrange(QUEUES) if topic == ORDERS else 0
    ack = world.chance.choice(_ACKS)
    with world.acting("producer"):
        results = world.producer().send_many(
            topic, [one.message() for one in sent], queue_id=queue_id, ack=ack
        )
        for one, result in zip(sent, results, strict=True):
            _acked(world, one, result, ack)


def send_later(world: World) -> None:
    """Send a delayed message."""
    sent, seconds = world.new(ORDERS), world.chance.choice((1, 5, 30, 600))
    sent.due_ms = world.clock() + 1000 * seconds
    ack = world.chance.choice(_ACKS)
    with world.acting("producer"):
        world.producer().send(
            ORDERS, sent.body, tags=sent.tag, keys=[sent.key], properties=sent.properties(),
            ack=ack, delay=seconds,
        )  # fmt: skip
    world.history.acked(sent, None, to_disk=durability_of(ack).needs_sync)


def begin(world: World) -> None:
    """Begin a transaction."""
    sent = world.new(ORDERS)
    sent.decision = world.chance.choice(("commit", "commit", "rollback"))
    with world.acting("producer"):
        transaction = world.producer().begin()
        world.producer().send(
            ORDERS, sent.body, tags=sent.tag, keys=[sent.key], properties=sent.properties(),
            ack="disk", transaction=transaction,
        )  # fmt: skip
    world.history.acked(sent, None, to_disk=True)
    world.open_transactions.append((transaction, sent))


def decide(world: World) -> None:
    """Commit the oldest open transaction, or roll it back, or leave it to the checks."""
    if not world.open_transactions:
        return
    transaction, sent = world.open_transactions.pop(0)
    if world.chance.random() < 0.3:
        transaction.close()
        return
    with world.acting("producer"):
        try:
            getattr(transaction, sent.decision)()
        except TransactionDecidedError:
            if not world.history.clock_jumped:
                raise WrongError(f"the decision of {sent.number} was taken by others") from None
            return
        except ShardUnavailableError:
            transaction.close()
            raise
    sent.is_decided = True


def answer_checks(world: World) -> None:
    """Let the producer answer what the node asks."""
    with world.acting("producer"):
        world.producer().transactions.answer_checks()


def _send(world: World, sent: Sent) -> None:
    ack = world.chance.choice(_ACKS)
    with world.acting("producer"):
        result = world.producer().send(
            sent.topic, sent.body, tags=sent.tag, keys=[sent.key],
            properties=sent.properties(), ack=ack,
            sharding_key=sent.key if sent.topic == PRICES else None,
        )  # fmt: skip
        _acked(world, sent, result, ack)


def _acked(world: World, sent: Sent, result: Any, ack: str) -> None:
    place = sent.topic, result.queue_id, result.queue_offset
    world.history.acked(sent, place, to_disk=durability_of(ack).needs_sync)


STEPS: tuple[Step, ...] = (
    Step(send, 30, 1),
    Step(send_list, 6, 0.7),
    Step(send_later, 5, 0.5),
    Step(begin, 5, 0.5),
    Step(decide, 5, 0.7),
    Step(answer_checks, 3, 0.8),
)
