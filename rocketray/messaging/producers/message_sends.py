"""Sends of single messages: the queue and the form of each, and whether it may wait.

``begin`` is for threads: it waits for room, and for the calls that the first message to a queue
needs. ``choose_queue`` and ``try_begin`` are for loops: they never wait, and say so when they would
have to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from rocketray.base.ack_mode import AckMode, Durability, durability_of, unknown_ack
from rocketray.errors import ConfigError
from rocketray.message import SHARDING_KEY, Message, with_sharding_key
from rocketray.runtime.one_process import OfOneProcess

from .batcher import Batcher, Handling, MessageFields
from .delayed_messages import place_delayed
from .links import QueueLinks
from .producer_options import OtherOptions, check_send, delay_in
from .queue_link import QueueLink
from .queue_selector import select_queue
from .send_future import MessageFuture
from .transactional_sends import Transaction, Transactions

# Any other option, such as a delay, may need a call for a topic or a queue that is not open yet.
_PLAIN = frozenset({"queue_id", "sharding_key", "timeout_s"})
# With one of these, the message must not be stored in another queue because a disk is full.
_CHOOSES = ("queue_id", "sharding_key", "queue_selector", "transaction")
# As in RocketMQ; the unique key of a half message is that of its transaction.
_NOT_IN_TRANSACTIONS = ("queue_selector", "delay", "deliver_at", "unique_key")


class MessageSends(OfOneProcess, what="producer"):
    """The single messages of one producer."""

    def __init__(
        self, links: QueueLinks, batcher: Batcher, transactions: Transactions | None
    ) -> None:
        self._links = links
        self._batcher = batcher
        self._transactions = transactions
        in_time: dict[object, Handling] = {mode.text: Handling(mode) for mode in Durability}
        in_time[None] = Handling(batcher.settings.durability)
        self._in_time: Mapping[object, Handling] = in_time
        self._at_once: Mapping[object, Handling] = {
            ack: replace(handling, at_once=True) for ack, handling in in_time.items()
        }
        self._one_way: Mapping[object, Handling] = {
            ack: replace(handling, one_way=True) for ack, handling in in_time.items()
        }

    def begin(
        self,
        function: str,
        topic: str,
        fields: MessageFields,
        ack: AckMode | None,
        options: OtherOptions,
        *,
        at_once: bool = False,
        one_way: bool = False,
    ) -> MessageFuture:
        """Send one message, *at_once* or when it is time; *one_way* without a result."""
        handlings = self._at_once if at_once else self._one_way if one_way else self._in_time
        handling = handlings[None] if ack is None else _handling(handlings, ack)
        queue_id = sharding_key = None
        if options:
            queue_id = options.pop("queue_id", None)
            sharding_key = options.pop("sharding_key", None)
        if not options:  # most messages
            now_s, batcher = time.monotonic(), self._batcher
            link = self._links.link(topic, queue_id, sharding_key, now_s)
            batch, index = batcher.add(link, fields, sharding_key, handling, now_s)
            return MessageFuture(batcher, link, batch, index)
        options["queue_id"], options["sharding_key"] = queue_id, sharding_key
        return self._begin_other(function, topic, fields, options, handling)

    def _begin_other(
        self,
        function: str,
        topic: str,
        fields: MessageFields,
        options: OtherOptions,
        handling: Handling,
    ) -> MessageFuture:
        """Begin the send of a message that has more *options* than the choice of its queue."""
        body, tags, keys, properties = fields
        queue_id, sharding_key = options.get("queue_id"), options.get("sharding_key")
        if sharding_key:
            properties = with_sharding_key(properties, sharding_key, topic)
        check_send(function, ("topic", "body"), options)
        if (timeout_s := options.get("timeout_s")) is not None:
            handling = replace(handling, timeout_s=timeout_s)
        unique_key = options.get("unique_key")
        message = Message(topic, body, tags, keys, properties or {}, unique_key=unique_key)
        if (transaction := options.get("transaction")) is not None:
            return self._begin_half(message, transaction, options, handling)
        if (selector := options.get("queue_selector")) is not None:
            queue_id = select_queue(selector, self._links.topic(topic).queues, message)
        if (delay := delay_in(options)) is not None:
            now_ms = self._batcher.settings.clock_ms()
            placed = place_delayed(
                self._links, message, delay, queue_id, sharding_key, now_ms=now_ms
            )
            message, queue_id, sharding_key = placed.message, placed.queue_id, None
            handling = self._waiting(topic, handling)
        return self._add(self._links.link(message.topic, queue_id, sharding_key), message, handling)

    def _begin_half(
        self, message: Message, transaction: Transaction, options: OtherOptions, handling: Handling
    ) -> MessageFuture:
        transactions = self._transactions
        if not isinstance(transaction, Transaction):
            raise ConfigError(
                f"transaction is {transaction!r:.80}; give one that the producer's begin() returned"
            )
        transaction.check_open(transactions)
        assert transactions is not None
        for name in _NOT_IN_TRANSACTIONS:
            if options.get(name) is not None:
                raise ConfigError(
                    f"a transaction has no {name}=, as in RocketMQ; it has queue_id=, "
                    "sharding_key= and delay_level="
                )
        if handling.one_way:
            raise ConfigError("a transaction needs the result of its message; give it to send()")
        queue_id, sharding_key = options.get("queue_id"), options.get("sharding_key")
        queue_id = self._links.choose_queue(message.topic, queue_id, sharding_key)
        level = options.get("delay_level") or 0
        half = transactions.half(message, queue_id, transaction, level)
        # On the disk of the queue that it is for, so that one machine is enough for a transaction.
        disk = self._links.topic(message.topic).disk_of(queue_id)
        place = self._links.near(disk, half.topic)
        link = self._links.link(half.topic, place.queue_id, None)
        waiting = self._waiting(message.topic, handling)
        future = self._add(link, half, waiting)
        transaction.half = future
        transaction.target = message.topic, queue_id
        assert waiting.durability is not None
        transaction.to_disk = waiting.durability.needs_sync
        return future

    def _waiting(self, topic: str, handling: Handling) -> Handling:
        """Return the handling of a message for *topic* that first waits in one of the node's."""
        durability = handling.durability
        if durability is None:
            durability = durability_of(self._links.topic(topic).default_ack)
        return replace(handling, of_node=True, durability=durability)

    def _add(self, link: QueueLink, message: Message, handling: Handling) -> MessageFuture:
        batch, index = self._batcher.add_message(link, message, handling)
        return MessageFuture(self._batcher, link, batch, index)

    def elsewhere(
        self, topic: str, properties: Mapping[str, str] | None, options: OtherOptions
    ) -> int | None:
        """Return the queue for a message that a full disk refused: on another disk.

        None if there is no such disk, or if the message or its *options* chose the queue.
        """
        has_choice = any(options.get(name) is not None for name in _CHOOSES)
        if has_choice or SHARDING_KEY in (properties or {}) or delay_in(options) is not None:
            return None
        return self._batcher.elsewhere(topic)

    def choose_queue(self, topic: str, fields: MessageFields, options: OtherOptions) -> int | None:
        """Return the queue of a message, and note it in *options*; None for an unknown topic."""
        check_send("send", ("topic", "body"), options)
        if not self._links.knows(topic):
            return None
        queue_id, selector = options.get("queue_id"), options.get("queue_selector")
        if selector is None or options.get("transaction") is not None:
            queue_id = self._links.choose_queue(topic, queue_id, options.get("sharding_key"))
        else:
            message = Message(topic, *fields)
            queue_id = select_queue(selector, self._links.topic(topic).queues, message)
            del options["queue_selector"]
        options["queue_id"] = queue_id
        return queue_id

    def try_begin(
        self,
        topic: str,
        fields: MessageFields,
        ack: AckMode | None,
        options: OtherOptions,
        *,
        one_way: bool = False,
    ) -> MessageFuture | None:
        """Send one message to its ``queue_id`` if that waits for nothing; None if it would."""
        handling = _handling(self._one_way if one_way else self._in_time, ack)
        if not options.keys() <= _PLAIN:
            return None
        link = self._links.existing(topic, options["queue_id"] or 0)
        if link is None:
            return None
        added = self._batcher.try_add(link, fields, options.get("sharding_key"), handling)
        return None if added is None else MessageFuture(self._batcher, link, *added)


def _handling(handlings: Mapping[object, Handling], ack: object) -> Handling:
    """Return the handling for an ack mode; raise :class:`ConfigError` for another text."""
    try:
        return handlings[ack]
    except (KeyError, TypeError):
        raise unknown_ack(ack) from None
