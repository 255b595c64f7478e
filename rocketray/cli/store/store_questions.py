"""Questions to a store as JSON lines, with the answers that RocketMQ's store would give.

A line has ``op`` and its inputs; the answer is the line with these fields appended.

    op                    inputs                                  answers
    range                 topic queueId                           min max
    get                   topic queueId offset max                status next min maxOffset offsets
    tag                   topic queueId sub offset max            status next offsets bytes
    sql                   topic queueId group sql offset max      status next filterMessageCount
                                                                  offsets
    tag_scan, sql_scan    topic queueId group, sub or sql         filterMessageCount offsets
    bytime                topic queueId ts boundary               offset
    key                   topic key maxNum                        commitLogOffsets

Without ``sub`` all messages match, without ``group`` no filter is registered. A scan continues to
the queue's end. An expression that fails on a message does not match it. The answer to an invalid
line has ``line`` and ``error``; the others are answered, and the command's exit code is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rocketray.cli.arguments.store_directory import OpenStore
from rocketray.errors import StoreError

if TYPE_CHECKING:
    from rocketray.filters.consumer_filter_data import ConsumerFilterData
    from rocketray.store.message_store import MessageStore
    from rocketray.store.reading.pull import GetMessageResult, MessageFilterLike, PullLimits

Registered = Mapping[str, Mapping[str, "ConsumerFilterData"]]
_SCAN_MAX_COUNT = 10_000  # of one read; the scan continues behind it
_KEY_MAX_COUNT = 64  # maxMsgsNumBatch
_Answer = dict[str, Any]


class Answers:
    """Processes requests about the stores of one directory."""

    def __init__(
        self, stores: Sequence[OpenStore], limits: PullLimits, registered: Registered
    ) -> None:
        """Create it; *registered* are the bitmaps' filters, by topic and group."""
        self._stores = stores
        self._limits = limits
        self._registered = registered
        self._operations: dict[str, Callable[[_Question], _Answer]] = {
            "range": self._range,
            "get": self._get,
            "tag": self._tag,
            "sql": self._sql,
            "tag_scan": self._scan,
            "sql_scan": self._scan,
            "bytime": self._by_time,
            "key": self._key,
        }

    def answer(self, line: Mapping[str, Any]) -> _Answer:
        """Return *line* with its answers.

        Raises:
            ValueError: a field is missing or of the wrong kind, or an expression does not parse.
            StreamError: the store cannot answer.
        """
        question = _Question(line)
        operation = self._operations.get(question.text("op"))
        if operation is None:
            raise ValueError(f"op is {line['op']!r:.80}; give one of {', '.join(self._operations)}")
        return {**line, **operation(question)}

    def _range(self, question: _Question) -> _Answer:
        store, queue = self._queue(question)
        return {
            "min": store.reads.min_queue_offset(*queue),
            "max": store.reads.max_queue_offset(*queue),
        }

    def _get(self, question: _Question) -> _Answer:
        result = self._pull(question, None)
        return _found(result, min=result.min_queue_offset, maxOffset=result.max_queue_offset)

    def _tag(self, question: _Question) -> _Answer:
        result = self._pull(question, self._filter(question))
        return _found(result) | {"bytes": result.size}

    def _sql(self, question: _Question) -> _Answer:
        result = self._pull(question, self._filter(question))
        return _found(result, filterMessageCount=result.filter_message_count)

    def _scan(self, question: _Question) -> _Answer:
        store, queue = self._queue(question)
        chosen = self._filter(question)
        offsets: list[int] = []
        rejected = at = 0
        while at < store.reads.max_queue_offset(*queue):
            result = store.reads.get_message(
                *queue, at, _SCAN_MAX_COUNT, chosen, limits=self._limits
            )
            offsets += _offsets(result)
            rejected += result.filter_message_count
            at = result.next_queue_offset
        return {"filterMessageCount": rejected, "offsets": offsets}

    def _by_time(self, question: _Question) -> _Answer:
        store, queue = self._queue(question)
        boundary: Literal["lower", "upper"]
        match question.text("boundary"):
            case "lower":
                boundary = "lower"
            case "upper":
                boundary = "upper"
            case other:
                raise ValueError(f"boundary is {other!r:.80}; give lower or upper")
        return {"offset": store.reads.queue_offset_by_time(*queue, question.number("ts"), boundary)}

    def _key(self, question: _Question) -> _Answer:
        topic, key = question.text("topic"), question.text("key")
        count = min(question.number("maxNum"), _KEY_MAX_COUNT)
        found = []
        for one in self._stores:
            one.check_keys()
            found += one.store.reads.query(topic, key, count, distinct=False)
        return {"commitLogOffsets": [message.physical_offset for message in found]}

    def _pull(
        self, question: _Question, message_filter: MessageFilterLike | None
    ) -> GetMessageResult:
        store, queue = self._queue(question)
        offset, count = question.number("offset"), question.number("max")
        return store.reads.get_message(*queue, offset, count, message_filter, limits=self._limits)

    def _queue(self, question: _Question) -> tuple[MessageStore, tuple[str, int]]:
        """Return the requested queue, and its store; any store if the queue does not exist."""
        queue = question.text("topic"), question.number("queueId")
        for one in self._stores:
            if one.store.reads.max_queue_offset(*queue):
                return one.store, queue
        if not self._stores:
            raise StoreError("there is no store yet; it is created with its topic's first shard")
        return self._stores[0].store, queue

    def _filter(self, question: _Question) -> MessageFilterLike:
        from rocketray.filters.expression_filter import ExpressionFilter  # NumPy
        from rocketray.filters.message_filter import MessageFilter  # imports Arrow
        from rocketray.filters.subscription import Subscription

        if question.text("op").startswith("tag"):
            return MessageFilter(Subscription.tags(question.text("sub", default="*")))
        groups = self._registered.get(question.text("topic"), {})
        return ExpressionFilter(
            Subscription.sql(question.text("sql"), "rocketmq"),
            groups.get(question.text("group", default="")),
        )


class _Question:
    """The fields of a line, by their kind."""

    def __init__(self, line: Mapping[str, Any]) -> None:
        self._line = line

    def text(self, name: str, default: str | None = None) -> str:
        value = self._line.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, str):
            return value
        raise ValueError(f"{name} is {value!r:.80}; give a string")

    def number(self, name: str) -> int:
        value = self._line.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
            return value
        raise ValueError(f"{name} is {value!r:.80}; give a 64-bit integer")


def _found(result: GetMessageResult, **counts: int) -> _Answer:
    found = {"status": result.status.name, "next": result.next_queue_offset}
    return {**found, **counts, "offsets": _offsets(result)}


def _offsets(result: GetMessageResult) -> list[int]:
    return [message.queue_offset for message in result.messages]
