"""What programs make from a node's data directory alone: ``rocketray.Client`` and its producers."""

from __future__ import annotations

from pathlib import Path

from rocketray.store.compression import COMPRESS_OVER_BYTES, CompressionKind

from .client import Connection
from .producer import AckMode
from .producer import Producer as NodeProducer
from .transaction_producer import Check
from .transaction_producer import TransactionProducer as NodeTransactionProducer

__all__ = ["Client", "Producer", "TransactionProducer"]


class Client(Connection):
    """A connection for queries and administration: ``Client(data)`` connects at once."""

    def __init__(self, data: Path | str | None = None) -> None:
        super().__init__(Connection.open(data).data)


class Producer(NodeProducer):
    """A producer for the node on *data*: ``with Producer() as producer: producer.send(…)``."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        ack: AckMode = "memory",
        timeout_s: float = 10.0,
        compression: CompressionKind | None = None,
        compress_over: int = COMPRESS_OVER_BYTES,
    ) -> None:
        """With *compression*, bodies of *compress_over* bytes and more are stored compressed."""
        super().__init__(
            Connection.open(data),
            ack=ack,
            timeout_s=timeout_s,
            compression=compression,
            compress_over=compress_over,
        )


class TransactionProducer(NodeTransactionProducer):
    """A producer of transactional messages for the node on *data*."""

    def __init__(
        self,
        group: str,
        check: Check,
        *,
        data: Path | str | None = None,
        ack: AckMode = "memory",
    ) -> None:
        """*check* answers for transactions of *group* that nobody decided: see its base class."""
        super().__init__(Connection.open(data), group, check, ack=ack)
