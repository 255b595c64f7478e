"""The options of a producer, and those of a send: each is declared here, and checked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from rocketray.base.ack_mode import AckMode, durability_of
from rocketray.base.delay import Delay, DelayOptions
from rocketray.base.meant import refuse_unknown
from rocketray.errors import ConfigError
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.formats.compression import COMPRESS_OVER_BYTES, Compression, CompressionKind

from .batcher import BatchSettings
from .given_lists import Keys, Texts
from .queue_selector import QueueSelector
from .transactional_sends import Check, Transaction

if TYPE_CHECKING:
    from rocketray.tracing import Tracing

SEND_TIMEOUT_S = 10.0
"""RocketMQ's is 3 s; Ray needs some seconds to start a shard's process again."""


class ProducerOptions(TypedDict, total=False):
    """The options of a producer.

    ``ack``: when a message counts as stored (``rocketray/base/ack_mode.py`` has the modes). By
    default what its topic says, or else the node, which says "memory" at first.
    ``timeout_s``: how long a send waits for room, and then for the acknowledgement; 10 s.
    ``compression``: store bodies compressed ("zlib", "lz4" or "zstd") if that makes them smaller.
    ``compress_over``: from this many bytes of a body on; 4096.
    ``group``, ``check``: the producer group of transactions, and the function that decides
    undecided ones (:class:`~.transactions.Transactions`); both or neither.
    ``tracing``: a :class:`rocketray.tracing.Tracing`: each send has a span, and its messages the
    context of it.
    """

    ack: AckMode | None
    timeout_s: float
    compression: CompressionKind | None
    compress_over: int
    group: str | None
    check: Check | None
    tracing: Tracing | None


class EverySend(DelayOptions, total=False):
    """The options of every way to send, beside ``ack``.

    ``queue_id``, ``sharding_key``, ``queue_selector``: the choice of the queue; one of them.
    The sharding key is stored as the property ``__SHARDINGKEY``.
    ``timeout_s``: how long to wait, in place of the producer's.
    The others delay the message (:class:`~rocketray.base.delay.DelayOptions`); one of them.
    """

    queue_id: int | None
    sharding_key: str | None
    queue_selector: QueueSelector | None
    timeout_s: float | None


class OtherOptions(EverySend, total=False):
    """The options of a send beside its tag, keys and properties: :class:`EverySend`'s, and these.

    ``unique_key``: the message's own id; without it the producer creates one.
    ``transaction``: deliver the message when this transaction is committed.
    """

    unique_key: str | None
    transaction: Transaction | None


class SendOptions(OtherOptions, total=False):
    """The options of a send: those of :class:`OtherOptions`, and these.

    ``tags``, ``keys``, ``properties``: of the message.
    """

    tags: str | None
    keys: Sequence[str]
    properties: Mapping[str, str] | None


class ManyOptions(EverySend, total=False):
    """The options of a send of many messages: those of :class:`EverySend`, and these.

    ``bodies``: the bodies of messages that are given as columns, in place of messages.
    ``tags``, ``keys``, ``properties``: the other columns. Each, and each property, is a text for
    all messages or a list with one for each, where None is "absent". In the list of keys, an entry
    may be a list: the keys of that message.
    ``property_columns``: the columns of a table that become properties, absent where null.
    """

    bodies: Sequence[bytes] | None
    tags: Texts | None
    keys: Keys | None
    properties: Mapping[str, Texts] | None
    property_columns: Sequence[str]


_OF_PRODUCERS = tuple(ProducerOptions.__annotations__)
_OF_SENDS = tuple(SendOptions.__annotations__)
_KNOWN = frozenset(_OF_SENDS)


def batch_settings(options: ProducerOptions, arguments: Sequence[str] = ()) -> BatchSettings:
    """Return a producer's options in the form that it uses, after checking them.

    *arguments* are names beside the options, which a mistyped one may stand for.

    Raises:
        ConfigError: one of them is unknown, or cannot be used as given.
    """
    names = (*arguments, *_OF_PRODUCERS)
    refuse_unknown("a producer has no option", options, names, f"there are {', '.join(names)}")
    compression, over = options.get("compression"), options.get("compress_over")
    if over is not None and (isinstance(over, bool) or not isinstance(over, int)):
        raise ConfigError(f"compress_over is {over!r:.60}; give a number of bytes")
    if (options.get("group") is None) != (options.get("check") is None):
        raise ConfigError(
            "transactions need both: group=, the name of their producers, and check=, the function "
            "that decides what one of these left undecided"
        )
    check_tracing(options.get("tracing"))
    over = COMPRESS_OVER_BYTES if over is None else over
    ack = options.get("ack")
    return BatchSettings(
        None if ack is None else durability_of(ack),
        _check_timeout(options.get("timeout_s", SEND_TIMEOUT_S)),
        RecordOptions(compression and Compression(compression, over)),
    )


def check_tracing(tracing: Tracing | None) -> Tracing | None:
    """Return *tracing*; raise :class:`ConfigError` unless it is one, or None."""
    if tracing is not None and not hasattr(tracing, "process_list"):
        raise ConfigError(f"tracing is {tracing!r:.60}; give a rocketray.tracing.Tracing()")
    return tracing


def _check_timeout(timeout_s: float) -> float:
    """Return *timeout_s*; raise :class:`ConfigError` unless it is a number of seconds above 0."""
    if not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ConfigError(f"timeout_s is {timeout_s!r:.60}; give seconds, more than 0")
    return timeout_s


def check_send(function: str, arguments: Sequence[str], options: Mapping[str, Any]) -> None:
    """Check the options of a call of *function*, which also has *arguments* of its own.

    Raises:
        ConfigError: one is unknown, several choose the queue, or the time is not above 0.
    """
    if "ack" in options:  # of all other sends it is a parameter
        raise ConfigError("a one-way send has no ack=, as it reports no result; use send()")
    if (options.keys() - _KNOWN).difference(arguments):
        ack = () if function.endswith("_oneway") else ("ack",)  # a parameter beside the options
        names = [*arguments, *ack, *_OF_SENDS]
        otherwise = f"its arguments are {', '.join(names)}"
        refuse_unknown(f"{function}() has no argument", options, names, otherwise)
    if (timeout_s := options.get("timeout_s")) is not None:
        _check_timeout(timeout_s)
    if options.get("queue_selector") is not None and (
        options.get("queue_id") is not None or options.get("sharding_key") is not None
    ):
        raise ConfigError(
            "queue_selector=, queue_id= and sharding_key= each choose a message's queue; give one"
        )


def delay_in(options: EverySend) -> Delay | None:
    """Return the delay among the options of a send; raise :class:`ConfigError` for several."""
    return Delay.of(options.get("delay_level"), options.get("delay"), options.get("deliver_at"))
