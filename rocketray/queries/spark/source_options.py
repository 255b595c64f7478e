"""The options of the Spark source, checked before anything is read.

Spark passes them as text, with names in lower case. An unknown name is an error: an option that is
silently dropped is a filter that silently does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rocketray.base.cluster import Cluster, chosen_node
from rocketray.errors import ConfigError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.division import Division
from rocketray.queries.ranges.offset_rules import EARLIEST, LATEST, OffsetRule, parse_rule
from rocketray.queries.ranges.time_rules import TimeRule, parse_time, parse_times
from rocketray.queries.ranges.topic_choice import TopicChoice, assigned, matching, named
from rocketray.queries.ranges.topic_queues import StoreDirectory

from .foreign_options import explain_stranger
from .source_columns import COLUMN_SETS, ColumnSetName

OPTION_NAMES = (
    "topic",
    "subscribe",
    "topicPattern",
    "subscribePattern",
    "assign",
    "tags",
    "sql",
    "dialect",
    "where",
    "filter",
    "columns",
    "includeHeaders",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "maxRowsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "data",
    "path",
    "cluster",
    "rayAddress",
    "longPollMs",
    "arrowBatchRows",
    "failOnDataLoss",
    "allowFilterChange",
)
_CANONICAL = {name.lower(): name for name in OPTION_NAMES}
_OTHER_NAMES = {
    "topic": "subscribe",
    "topicPattern": "subscribePattern",
    "maxOffsetsPerTrigger": "maxRowsPerTrigger",
}
"""The second name of an option; errors have the one that its user wrote."""
_CHOICES: Mapping[str, Callable[[str, str], TopicChoice]] = {
    "topic": named,
    "subscribe": named,
    "topicPattern": matching,
    "subscribePattern": matching,
    "assign": assigned,
}
_TOPIC_NAMES = {name.lower() for name in _CHOICES}
_COUNT_MAX = 1 << 62  # no queue has as many messages
_PARTITIONS_MAX = 100_000  # at 50 ms a task, already 5,000 s of processor time
_TRIGGER_DELAY_S = 15 * 60.0  # Kafka's
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)?")  # without a unit milliseconds, as in Spark
_ARROW_BATCH_ROWS = 20_000  # measured: 10 to 50 thousand rows fit the processor's caches
_ARROW_BATCH_ROWS_MAX = 1_000_000  # a batch is in memory as a whole, with its bodies
_LONG_POLL_MS = 500  # an idle query asks twice a second; a stop waits for it that long at most
_LONG_POLL_MS_MAX = 60_000  # as long as Spark waits for a query that is stopped (session.py)
_FOR_WRITING = frozenset({"path", "paths"})
"""Options, in lower case, that Spark also passes for writing."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many messages a micro-batch covers, and how long the least of them are waited for."""

    most: int | None = None
    least: int | None = None
    delay_s: float = _TRIGGER_DELAY_S


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query.

    ``filter`` may be the name of one of the topic, which its reader looks up. ``node`` is the
    cluster, or the absolute path of a data or store directory. ``starting`` and ``ending`` are None
    if not given: the reader has its default. ``given`` has the options' names.
    """

    choice: TopicChoice
    columns: ColumnSetName
    has_headers: bool
    filter: Subscription | FilterName
    node: Path | Cluster | StoreDirectory
    starting: OffsetRule | TimeRule | None
    ending: OffsetRule | TimeRule | None
    limits: BatchLimits
    division: Division
    long_poll_ms: int
    arrow_batch_rows: int
    fail_on_data_loss: bool
    allow_filter_change: bool
    given: frozenset[str]

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise :class:`ConfigError` if one of the options *names* is given."""
        for name in names:
            if name in self.given:
                raise ConfigError(f"{name} is {why}")


def parse_options(options: Mapping[str, str], environ: Mapping[str, str]) -> SourceOptions:
    """Return the options as values; names are case-insensitive.

    Raises:
        ConfigError: an unknown name, a missing topic, or an unusable value.
        FilterSyntaxError: ``tags`` or ``sql`` does not parse.
    """
    given = {_canonical_name(name): value for name, value in options.items()}
    for own in _OTHER_NAMES:
        _written(given, own)
    return SourceOptions(
        choice=_choice(given),
        columns=_columns(given),
        has_headers=_has_headers(given),
        filter=_filter(given),
        node=_node(given, environ),
        starting=_rule(given, "starting", others=EARLIEST),
        ending=_rule(given, "ending", others=LATEST),
        limits=_limits(given),
        division=Division(
            _number_or_none(given, "minPartitions", _PARTITIONS_MAX),
            _number_or_none(given, "maxRecordsPerPartition"),
        ),
        long_poll_ms=_number(given, "longPollMs", _LONG_POLL_MS, 0, _LONG_POLL_MS_MAX),
        arrow_batch_rows=_number(
            given, "arrowBatchRows", _ARROW_BATCH_ROWS, 1, _ARROW_BATCH_ROWS_MAX
        ),
        fail_on_data_loss=_claim(given, "failOnDataLoss", default=True),
        allow_filter_change=_claim(given, "allowFilterChange", default=False),
        given=frozenset(given),
    )


def may_be_writing(options: Mapping[str, str]) -> bool:
    """Return whether they may be a writer's: then to explain a source's would not help."""
    names = {name.lower() for name in options}
    return _TOPIC_NAMES.isdisjoint(names) or not names <= _CANONICAL.keys() - _FOR_WRITING


def _canonical_name(name: str) -> str:
    canonical = _CANONICAL.get(name.lower())
    if canonical is not None:
        return canonical
    raise ConfigError(explain_stranger(name, OPTION_NAMES))


def _written(given: Mapping[str, str], own: str) -> str:
    """Return which name of an option is given; its own if none is.

    Raises:
        ConfigError: both are given.
    """
    other = _OTHER_NAMES[own]
    if other not in given:
        return own
    if own in given:
        raise ConfigError(f"{other} is another name of {own}; give one")
    return other


def _only_one(given: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return which of *names* is given, or None; raise :class:`ConfigError` for two of them."""
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise ConfigError(f"{found[0]} and {found[1]} are both given; give one")
    return found[0] if found else None


def _choice(given: Mapping[str, str]) -> TopicChoice:
    option = _only_one(given, [*_CHOICES])
    if option is None:
        raise ConfigError(
            'the topic is missing; add .option("topic", "Trade"), a list with commas, or '
            "topicPattern, or assign"
        )
    return _CHOICES[option](given[option], option)


def _filter(given: Mapping[str, str]) -> Subscription | FilterName:
    if "tags" in given and "sql" in given:
        raise ConfigError("both tags and sql are given; use TAGS in the sql, or drop one of them")
    _only_one(given, ["tags", "sql", "where", "filter"])
    if "filter" in given:
        if "dialect" in given:
            raise ConfigError("a named filter has its dialect; drop dialect")
        choice = _choice(given)
        if choice.pattern is not None or len(choice.names) != 1:
            raise ConfigError(
                f"filter={given['filter']!r:.80} is of one topic, and the query reads "
                f"{choice.text:.200}: name one topic, or give the filter with tags or sql"
            )
    dialect = cast("Dialect | None", given.get("dialect"))  # checked by the subscription
    words = given.get("tags") or None, given.get("sql"), given.get("where"), given.get("filter")
    return FilterChoice(*words, dialect).filter()


def _node(given: Mapping[str, str], environ: Mapping[str, str]) -> Path | Cluster | StoreDirectory:
    if "path" in given:
        for other in ("data", "cluster", "rayAddress"):
            if other in given:
                raise ConfigError(
                    f"path and {other} are both given; path names a store directory that is read "
                    "without a node: give one"
                )
        return StoreDirectory(Path(given["path"]).absolute())
    places = given.get("data"), given.get("cluster"), given.get("rayAddress")
    node = chosen_node(*places, environ)
    return node.absolute() if isinstance(node, Path) else node  # the same in every process


def _rule(given: Mapping[str, str], side: str, *, others: int) -> OffsetRule | TimeRule | None:
    """Return the start or the end of a query, from the option that says it."""
    by_offset, by_time, by_times = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    strategy = f"{by_times}Strategy"
    option = _only_one(given, [by_offset, by_time, by_times])
    if strategy in given and option not in (by_time, by_times):
        raise ConfigError(f"{strategy} goes with {by_time} or {by_times}; add one, or drop it")
    if option is None:
        return None
    text = given[option]
    if option == by_offset:
        return parse_rule(text, option, others=others)
    is_strict = side == "starting" and _strategy(given.get(strategy, "error"), strategy)
    if option == by_time:
        return TimeRule(option, parse_time(text, option), {}, others, is_strict)
    return TimeRule(option, None, parse_times(text, option), others, is_strict)


def _columns(given: Mapping[str, str]) -> ColumnSetName:
    text = given.get("columns", "rocketray").strip().lower()
    if text not in COLUMN_SETS:
        raise ConfigError(
            f"columns={text!r:.80}: write rocketray or kafka; single columns are chosen with "
            '.schema("body binary, queueOffset bigint")'
        )
    return cast("ColumnSetName", text)


def _has_headers(given: Mapping[str, str]) -> bool:
    if "includeHeaders" in given and _columns(given) != "kafka":
        raise ConfigError(
            "includeHeaders goes with columns=kafka; of our own columns, properties has them"
        )
    return _claim(given, "includeHeaders", default=False)


def _strategy(text: str, option: str) -> bool:
    is_strict = {"error": True, "latest": False}.get(text.strip().lower())
    if is_strict is None:
        raise ConfigError(f"{option}={text!r}: write error or latest")
    return is_strict


def _limits(given: Mapping[str, str]) -> BatchLimits:
    most_name = _written(given, "maxOffsetsPerTrigger")
    most = _number_or_none(given, most_name)
    least = _number_or_none(given, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger={least} is more than {most_name}={most}")
    delay = given.get("maxTriggerDelay")
    if delay is None:
        return BatchLimits(most, least)
    if least is None:
        raise ConfigError("maxTriggerDelay goes with minOffsetsPerTrigger; add it, or drop both")
    return BatchLimits(most, least, _seconds(delay, "maxTriggerDelay"))


def _seconds(text: str, option: str) -> float:
    """Return a duration in Spark's form, such as 15m."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError(
            f"{option}={text!r}: write a number and a unit, such as 500ms, 30s or 15m"
        )
    return int(match[1]) * _UNITS_S[match[2] or "ms"]


def _number_or_none(given: Mapping[str, str], option: str, most: int = _COUNT_MAX) -> int | None:
    return _number(given, option, 0, 1, most) if option in given else None


def _number(given: Mapping[str, str], option: str, default: int, least: int, most: int) -> int:
    text = given.get(option)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        # Out of range, so that the error below names it.
        value = least - 1
    if not least <= value <= most:
        raise ConfigError(f"{option}={text!r}: write a whole number from {least} to {most}")
    return value


def _claim(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option)
    if text is None:
        return default
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ConfigError(f"{option}={text!r}: write true or false")
    return value
