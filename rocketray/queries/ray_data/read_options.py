"""The options of a read of a topic, and what its start and its end mean.

The names and forms of the two offsets are those of ``ray.data.read_kafka``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

from rocketray.base.meant import refuse_unknown
from rocketray.broker.fetching.read_plan import ReadPlan
from rocketray.errors import ConfigError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.offset_rules import EARLIEST, LATEST, OffsetRule
from rocketray.queries.ranges.time_rules import TimeRule
from rocketray.store.reading.columns import COLUMN_TYPES, column_schema

OffsetChoice = str | int | datetime | Mapping[int, int | str]
"""A word, an offset, a time, or an offset or a word for each queue."""
_BATCH_ROWS = 20_000  # they fit the processor's caches; Ray Data joins batches to blocks
_DEFAULT_COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "body",
    "tags",
    "keys",
    "properties",
    "bornTimestamp",
    "storeTimestamp",
)
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSET_MAX = (1 << 63) - 1  # the store's offsets have 64 bits, with a sign
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS = "write earliest, latest, an offset, a datetime, or a mapping such as {0: 123, 1: 'latest'}"


class ReadOptions(TypedDict, total=False):
    """The options of a read.

    ``columns``: the columns to read, by default all but ``msgId`` and ``shardingKey``.
    ``start_offset``, ``end_offset``: where each queue begins and ends; the end is not read. Either
    "earliest", "latest", an offset, a datetime (the first message stored then or later; without a
    time zone it is in UTC), or a mapping from queue ids to offsets and words. A queue that the
    mapping does not name is read from its first message, or to its last.
    ``tags``, ``sql``, ``where``: the filter, one of them; ``dialect``: of the SQL. Or ``filter``,
    the name of one of the topic, as "large" or "large@2"; without a version it is the latest.
    ``data``, ``cluster``, ``ray_address``: the node, as for a :class:`~rocketray.Client`.
    ``fail_on_data_loss``: False reads what is left if messages are deleted before they are read.
    """

    columns: Sequence[str] | None
    start_offset: OffsetChoice
    end_offset: OffsetChoice
    tags: str | None
    sql: str | None
    where: str | Callable[..., Any] | None
    dialect: Dialect | None
    filter: str | None
    data: Path | str | None
    cluster: str | None
    ray_address: str | None
    fail_on_data_loss: bool


def read_plan(options: ReadOptions, look_up: Callable[[FilterName], Subscription]) -> ReadPlan:
    """Return what all tasks of a read share; *look_up* finds a filter by its name.

    Raises:
        ConfigError: an option or a column is unknown, or the filter cannot be used.
        FilterSyntaxError: the filter does not parse.
    """
    known = tuple(ReadOptions.__annotations__)
    refuse_unknown("a read has no option", options, known, f"there are {', '.join(known)}")
    columns = options.get("columns")
    if columns is not None and not columns:
        raise ConfigError(f"columns= names no column; there are {', '.join(COLUMN_TYPES)}")
    chosen = tuple(columns or _DEFAULT_COLUMNS)
    column_schema(chosen)  # refuses unknown ones
    tags, sql, where = options.get("tags"), options.get("sql"), options.get("where")
    choice = FilterChoice(tags, sql, where, options.get("filter"), options.get("dialect"))
    given = choice.filter()
    subscription = look_up(given) if isinstance(given, FilterName) else given
    return ReadPlan(subscription, chosen, _BATCH_ROWS, options.get("fail_on_data_loss", True))


def offset_rule(
    topic: str, choice: OffsetChoice, option: str, *, others: int
) -> OffsetRule | TimeRule:
    """Return the rule of a start or an end; *others* is the one for queues that it does not name.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(choice, datetime):
        aware = choice.replace(tzinfo=UTC) if choice.tzinfo is None else choice
        # A message is stored at a whole millisecond: the first one at or after that time.
        time_ms = -((_EPOCH - aware) // timedelta(milliseconds=1))
        return TimeRule(option, time_ms, {}, others)
    if isinstance(choice, Mapping):
        named = {
            (topic, _number(queue_id, option)): _offset(each, option)
            for queue_id, each in choice.items()
        }
        return OffsetRule(others, named)
    return OffsetRule(_offset(choice, option), {})


def _offset(value: object, option: str) -> int:
    word = _WORDS.get(value) if isinstance(value, str) else None
    return _number(value, option) if word is None else word


def _number(value: object, option: str) -> int:
    if type(value) is not int or not 0 <= value <= _OFFSET_MAX:
        raise ConfigError(f"{option} has {value!r:.60}; {_FORMS}")
    return value
