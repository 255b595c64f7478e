"""Every error that rocketray raises on purpose.

    StreamError
    ├─ StoreError     StoreClosedError · StoreLockedError · StoreVersionError · StoreFullError
    │                 CorruptRecordError · OffsetOutOfRangeError · MessageTooLargeError
    │                 DataDirectoryError
    ├─ FilterError    FilterSyntaxError · FilterEvaluationError · PredicateError
    ├─ ConfigError    InvalidNameError · InvalidMessageError
    ├─ BatchError     raised by handlers of lists
    ├─ UnsupportedPlatformError
    └─ ActorError     NodeNotRunningError · NodeElsewhereError · TopicNotFoundError
                      ForkedError
                      ShardUnavailableError (ShardMovedError) · ShardFencedError
                      OwnerFencedError
                      StrategyConflictError · SubscriptionConflictError · SubscriptionRefusedError
                      TransactionDecidedError · RegisterUnavailableError · SupersededError

Invariants
  1. A message says what happened, where, and what to do next.
  2. Every leaf survives ``pickle``, because Ray sends errors between processes: its fields are
     exactly the positional arguments of its constructor, which ``Exception.__reduce__`` replays.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

__all__ = [
    "ActorError",
    "BatchError",
    "ConfigError",
    "CorruptRecordError",
    "DataDirectoryError",
    "EvaluationErrorKind",
    "FilterError",
    "FilterEvaluationError",
    "FilterSyntaxError",
    "ForkedError",
    "InvalidMessageError",
    "InvalidNameError",
    "MessageTooLargeError",
    "NodeElsewhereError",
    "NodeNotRunningError",
    "OffsetOutOfRangeError",
    "OwnerFencedError",
    "PredicateError",
    "RegisterUnavailableError",
    "ShardFencedError",
    "ShardMovedError",
    "ShardUnavailableError",
    "StoreClosedError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreVersionError",
    "StrategyConflictError",
    "StreamError",
    "SubscriptionConflictError",
    "SubscriptionRefusedError",
    "SupersededError",
    "TopicNotFoundError",
    "TransactionDecidedError",
    "UnsupportedPlatformError",
]

# An actor that Ray restarts is back in 0.5 to 1.5 s, a gateway and a queue that moves in some
# seconds; a shard that closed is opened again after a second at the earliest.
_RETRY_AFTER_MS = 1000


class StreamError(Exception):
    """The root of all errors that rocketray raises on purpose."""


class StoreError(StreamError):
    """A failed operation of the log, its queues or its index."""


class StoreClosedError(StoreError):
    """A call to a store after ``close()``."""


class StoreLockedError(StoreError):
    """Another process holds the store's exclusive lock."""


class StoreVersionError(StoreError):
    """A directory, or a file in it, is of a version of rocketray that this one cannot read."""


class DataDirectoryError(StoreError):
    """The data directory is missing, or another one is in its place; nothing was created."""


class StoreFullError(StoreError):
    """The file system has no space for the next segment; no message of the batch was stored."""


class CorruptRecordError(StoreError):
    """Bytes on disk differ from the bytes that were written."""

    def __init__(self, path: str, physical_offset: int, reason: str) -> None:
        super().__init__(path, physical_offset, reason)
        self.path = path
        self.physical_offset = physical_offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path}: corrupt record at physical offset {self.physical_offset}: {self.reason}"
        )


class OffsetOutOfRangeError(StoreError):
    """An offset outside the range that the queue or the log holds."""

    def __init__(self, where: str, offset: int, minimum: int, maximum: int) -> None:
        super().__init__(where, offset, minimum, maximum)
        self.where = where
        self.offset = offset
        self.minimum = minimum
        self.maximum = maximum

    def __str__(self) -> str:
        return (
            f"{self.where}: offset {self.offset} is out of range; "
            f"ask for one from {self.minimum} up to, not including, {self.maximum}"
        )


class MessageTooLargeError(StoreError):
    """A body, property string or record over its limit."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what = what
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.what} of {self.size} bytes is over the limit of {self.limit} bytes"


class FilterError(StreamError):
    """A subscription that is invalid, or that failed on a message."""


class FilterSyntaxError(FilterError, ValueError):
    """A filter expression that does not parse; ``str()`` draws a caret under the place.

    ``start`` and ``end`` are character positions in ``expression``, ``end`` exclusive. Unprintable
    characters are drawn as blanks.
    """

    def __init__(self, reason: str, expression: str, start: int, end: int) -> None:
        super().__init__(reason, expression, start, end)
        self.reason = reason
        self.expression = expression
        self.start = start
        self.end = end

    def __str__(self) -> str:
        line_start = self.expression.rfind("\n", 0, self.start) + 1
        line_end = self.expression.find("\n", self.start)
        line = self.expression[line_start : line_end if line_end >= 0 else None]
        line = "".join(char if char.isprintable() or char == "\t" else " " for char in line)
        column = self.start - line_start
        width = max(1, min(self.end - self.start, len(line) - column))
        padding = "".join("\t" if char == "\t" else " " for char in line[:column])
        return f"{self.reason}\n  {line}\n  {padding}{'^' * width}"


class EvaluationErrorKind(Enum):
    """The reason that an expression cannot compare a value."""

    NOT_INT32 = "not a 32-bit integer"
    NOT_INT64 = "not a 64-bit integer"
    NOT_DOUBLE = "not a number"
    BOOLEAN_WITH_TEXT = "a boolean compared with a string"


class FilterEvaluationError(FilterError):
    """An expression met a value that it cannot compare; the message does not match."""

    def __init__(self, message: str, kind: EvaluationErrorKind) -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class PredicateError(FilterError):
    """A class filter that cannot be imported, is not allowed, or failed on a message."""


class ConfigError(StreamError, ValueError):
    """An invalid setting, option or argument."""


class InvalidNameError(ConfigError):
    """A name of a topic, group or cluster that breaks the rules for characters or length."""


class InvalidMessageError(ConfigError):
    """A message that no store accepts, or that no subscription could ever match."""


class BatchError(StreamError):
    """The error with which a handler of a list or a batch says which of its messages failed.

    Messages before number ``index``, counted from 0, are finished. Message ``index`` is retried by
    the agent's rules. The messages behind it are redelivered.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index

    def __str__(self) -> str:
        return f"message {self.index} of the list failed"


class UnsupportedPlatformError(StreamError, ImportError):
    """Rocketray cannot run on this machine, or with the packages that are installed."""


class ActorError(StreamError):
    """A failed request to a part of the cluster."""


class NodeNotRunningError(ActorError):
    """No rocketray node answers for the given data directory."""


class NodeElsewhereError(ActorError):
    """The node of the given data directory runs on another machine, and can be used only there."""


class TopicNotFoundError(ActorError):
    """The topic does not exist in this cluster, or not in *where*, the directory searched.

    *near* is the name of a similar topic that exists, "" for none.
    """

    def __init__(self, topic: str, where: str = "", near: str = "") -> None:
        super().__init__(topic, where, near)
        self.topic = topic
        self.where = where
        self.near = near

    def __str__(self) -> str:
        place = f" in {self.where}" if self.where else ""
        otherwise = f"did you mean {self.near!r}? Otherwise " if self.near else ""
        return (
            f"topic {self.topic!r} does not exist{place}; {otherwise}"
            f"create it with: rocketray topics create {self.topic}"
        )


class ForkedError(ActorError):
    """An object is used in a fork of the process that made it, whose memory and threads it needs.

    - ``thing``: what it is, such as "producer".
    - ``maker``: the id of the process that made it.
    - ``process``: the id of this process.
    """

    def __init__(self, thing: str, maker: int, process: int) -> None:
        super().__init__(thing, maker, process)
        self.thing = thing
        self.maker = maker
        self.process = process

    def __str__(self) -> str:
        return (
            f"this {self.thing} was made in process {self.maker}, and this is process "
            f"{self.process}, a fork of it: make one in each process, after the fork, and none "
            "before it; process "
            f"{self.maker} is not disturbed"
        )


class ShardUnavailableError(ActorError):
    """A shard, or what is asked about it, is unavailable; the call may be repeated.

    - ``what``: what is unavailable, in words, such as ``"shard Trade/0"`` or ``"the coordinator"``.
    - ``retry_after_ms``: when to repeat the call; 0 is now.
    """

    def __init__(self, what: str, reason: str, retry_after_ms: int = _RETRY_AFTER_MS) -> None:
        super().__init__(what, reason, retry_after_ms)
        self.what = what
        self.reason = reason
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        when = f"in {self.retry_after_ms} ms" if self.retry_after_ms else "now"
        return f"{self.what} is unavailable: {self.reason}; try again {when}"


class ShardMovedError(ShardUnavailableError):
    """The queue is moving to another disk, or is there by now: look up where it is, then repeat."""


class ShardFencedError(ActorError):
    """A newer incarnation owns the shard; this one must not append any more."""


class OwnerFencedError(ActorError):
    """The queue of a changelog has a newer owner; nothing of the batch was stored.

    An app handles it: it drops its part of the table and reads it again if it owns the queue later.
    """

    def __init__(self, shard: str) -> None:
        super().__init__(shard)
        self.shard = shard

    def __str__(self) -> str:
        return (
            f"shard {self.shard}: the changes are of a former owner of the queue, and were not "
            "stored, because another member was granted the queue since then; its messages are "
            "redelivered to the present owner"
        )


class RegisterUnavailableError(ActorError):
    """The register did not answer, or not as it must; a change may have been made all the same."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the register {self.address} is unavailable: {self.reason}; check that it runs, and "
            "that this machine reaches it with access rights, then try again"
        )


class SupersededError(ActorError):
    """Another coordinator has taken over the documents of a register; this one saves no more.

    ``taker`` is where that one runs, "" if that is not known.
    """

    def __init__(self, address: str, document: str, taker: str = "") -> None:
        super().__init__(address, document, taker)
        self.address = address
        self.document = document
        self.taker = taker

    def __str__(self) -> str:
        runs = f"runs on {self.taker} and " if self.taker else ""
        return (
            f"another coordinator has taken over: it {runs}saved {self.document!r} in the register "
            f"{self.address}, and this one saves nothing more; use the node that was started last"
        )


class TransactionDecidedError(ActorError):
    """A transaction was decided differently before; the first decision counts.

    - ``wanted``: "commit" or "rollback".
    - ``outcome``: the first decision: ``"commit"``, ``"rollback"`` or ``"abandon"``.
    - ``decided_ms``: its time, in milliseconds since 1970.
    - ``decider``: "producer" (one of the group), "check" (the check function of one), or "node" (it
      abandons transactions that stay undecided).
    """

    def __init__(
        self, unique_key: str, wanted: str, outcome: str, decided_ms: int, decider: str
    ) -> None:
        super().__init__(unique_key, wanted, outcome, decided_ms, decider)
        self.unique_key = unique_key
        self.wanted = wanted
        self.outcome = outcome
        self.decided_ms = decided_ms
        self.decider = decider

    def __str__(self) -> str:
        who = {"check": "a check", "node": "the node"}.get(self.decider, "a producer of its group")
        when = datetime.fromtimestamp(self.decided_ms / 1000, UTC).isoformat(" ", "milliseconds")
        becomes = (
            "its message is delivered: undo its effects"
            if self.outcome == "commit"
            else "its message is not delivered: undo the work that it announces, or send it again"
        )
        return (
            f"transaction {self.unique_key}: the {self.wanted} is refused, because {who} decided "
            f"before, at {when}: {self.outcome}; {becomes}"
        )


class StrategyConflictError(ActorError):
    """Two members of one group ask for different assignment strategies for one topic."""

    def __init__(self, group: str, topic: str, existing: str, offered: str) -> None:
        super().__init__(group, topic, existing, offered)
        self.group = group
        self.topic = topic
        self.existing = existing
        self.offered = offered

    def __str__(self) -> str:
        return (
            f"group {self.group!r} assigns the queues of topic {self.topic!r} by {self.existing}, "
            f"and a member asks for {self.offered}; members of one group must agree: use another "
            "group, or stop the group's members first"
        )


class SubscriptionConflictError(ActorError):
    """Two members of one group subscribe differently to one topic."""

    def __init__(
        self, group: str, topic: str, existing: str, offered: str, difference: str = ""
    ) -> None:
        super().__init__(group, topic, existing, offered, difference)
        self.group = group
        self.topic = topic
        self.existing = existing
        self.offered = offered
        self.difference = difference

    def __str__(self) -> str:
        shown = f" ({self.difference})" if self.difference else ""
        return (
            f"group {self.group!r} subscribes to topic {self.topic!r} with {self.existing}, "
            f"and a member asks for {self.offered}{shown}; members of one group must subscribe "
            "alike: use another group, stop the group's members first, or change the group while "
            "it runs: rocketray groups migrate"
        )


class SubscriptionRefusedError(ActorError):
    """The node refuses to filter for a group's subscription; RocketMQ's status says why."""

    def __init__(self, group: str, topic: str, reason: str) -> None:
        super().__init__(group, topic, reason)
        self.group = group
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return f"group {self.group!r} on topic {self.topic!r}: {self.reason}"
