"""Transactions of tests: begun with their message."""

from __future__ import annotations

from typing import Unpack

from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import SendOptions
from rocketray.messaging.producers.transactional_sends import Transaction


def begin(
    producer: NodeProducer, topic: str, body: bytes, **options: Unpack[SendOptions]
) -> Transaction:
    """A transaction whose half message is stored."""
    transaction = producer.begin()
    options["transaction"] = transaction
    producer.send(topic, body, **options)
    return transaction
