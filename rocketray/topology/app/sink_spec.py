"""What ``@app.sink`` declares: a Spark query over a topic, as a value. Imports no pyspark.

@app.sink(trade, tags="pay", checkpoint="checkpoints/pay", trigger="5 seconds")
def pay_lake(df):                   # one argument: returns a DataStreamWriter, not started
    return df.writeStream.format("parquet").option("path", "lake/pay")

@app.sink(trade, sql="amount > 100")
def alert(df, batch_id):            # two arguments: called for each micro-batch (foreachBatch)
    ...
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from rocketray.base.names import check_topic
from rocketray.errors import ConfigError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription

DEFAULT_TRIGGER = "1 second"
AVAILABLE_NOW = "available now"
EARLIEST = "earliest"
# A wrong interval fails where the sink is declared, and not when its query starts.
_TRIGGER = re.compile(r"(\d{1,9}) *(?:milliseconds?|seconds?|minutes?|hours?)\Z")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}\Z")  # also the name of the default checkpoint directory


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One sink, checked when it is created.

    ``filter`` is the name of one of the topic, as "large" or "large@2".
    ``checkpoint`` None means a directory of the sink's name under the host's checkpoint root, there
    below one of ``owner``: sinks of two apps may have one name.
    ``schema`` names the columns to read, in Spark's DDL form; None reads all. ``max_rows`` limits a
    micro-batch. ``starting_offsets`` applies only without a checkpoint. ``options`` are further
    options of the source.
    """

    name: str
    function: Callable[..., Any]
    topic: str
    tags: str | None = None
    sql: str | None = None
    dialect: Dialect | None = None
    filter: str | None = None
    checkpoint: str | None = None
    trigger: str = DEFAULT_TRIGGER
    schema: str | None = None
    max_rows: int | None = None
    starting_offsets: str = EARLIEST
    options: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(
                f"a sink's name is 1 to 120 letters, digits and . _ -, not {self.name!r}"
            )
        for name in self.topics:
            check_topic(name)
        if self.tags is not None and self.sql is not None:
            raise ConfigError(f"sink {self.name!r} has both tags and sql; keep one of them")
        if isinstance(self.chosen_filter(), FilterName) and len(self.topics) != 1:
            raise ConfigError(
                f"sink {self.name!r} has filter={self.filter!r}, which is of one topic: name one"
            )
        self.trigger_arguments()
        if self.max_rows is not None and self.max_rows < 1:
            raise ConfigError(f"sink {self.name!r}: max_rows is {self.max_rows}; give 1 or more")
        _count_arguments(self.name, self.function)

    def chosen_filter(self) -> Subscription | FilterName:
        """Return the filter, in the form that agents have."""
        return FilterChoice(self.tags or None, self.sql, None, self.filter, self.dialect).filter()

    @property
    def topics(self) -> list[str]:
        """The names in ``topic``, which are separated by commas."""
        return [name.strip() for name in self.topic.split(",")]

    @property
    def is_foreach_batch(self) -> bool:
        """Whether the function takes micro-batches, rather than returning a writer."""
        return _count_arguments(self.name, self.function) == 2

    def trigger_arguments(self) -> dict[str, Any]:
        """Return the arguments of Spark's ``DataStreamWriter.trigger``."""
        text = " ".join(self.trigger.lower().split())
        if text in (AVAILABLE_NOW, "availablenow"):
            return {"availableNow": True}
        if not _TRIGGER.match(text):
            raise ConfigError(
                f"sink {self.name!r}: trigger={self.trigger!r}; write an interval like '5 "
                f"seconds', or {AVAILABLE_NOW!r} to read all stored messages and end"
            )
        return {"processingTime": text}

    def source_options(self) -> dict[str, str]:
        """Return the options of ``format("rocketray")``, without the data directory."""
        chosen = {
            "topic": self.topic,
            "tags": self.tags,
            "sql": self.sql,
            "dialect": self.dialect,
            "filter": self.filter,
            "startingOffsets": self.starting_offsets,
            "maxOffsetsPerTrigger": None if self.max_rows is None else str(self.max_rows),
        }
        return {name: text for name, text in chosen.items() if text is not None} | {**self.options}


def add_sink(
    sinks: dict[str, SinkSpec],
    spec: SinkSpec,
    checkpoint_of: Callable[[SinkSpec], str | None] = attrgetter("checkpoint"),
) -> None:
    """Register *spec* among the sinks of an app.

    Raises:
        ConfigError: the app has a sink of that name or with that checkpoint; each needs its own.
    """
    if spec.name in sinks:
        raise ConfigError(f"this app has a sink {spec.name!r} already; give one another name")
    checkpoint = checkpoint_of(spec)
    for other in sinks.values():
        if checkpoint is not None and checkpoint == checkpoint_of(other):
            raise ConfigError(
                f"sinks {other.name!r} and {spec.name!r} have the same checkpoint, {checkpoint}; "
                "each needs its own directory"
            )
    sinks[spec.name] = spec


def _count_arguments(name: str, function: Callable[..., Any]) -> int:
    count = len(inspect.signature(function).parameters)
    if count not in (1, 2):
        raise ConfigError(
            f"sink {name!r} takes {count} arguments; write f(df), which returns df.writeStream…, "
            "or f(df, batch_id), which is called for each micro-batch"
        )
    return count
