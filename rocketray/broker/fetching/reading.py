"""Reading one range of a queue, wherever its disk is: from its files, or from its fetch service."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rocketray.errors import ConfigError
from rocketray.runtime.files.home import has_identity

from .range_client import fetch_range
from .range_reader import read_range, read_store_range, tell_doubts
from .read_plan import DiskPlace, Range, ReadPlan, Warn


def read_part(
    place: DiskPlace, plan: ReadPlan, part: Range, warn: Warn, *, is_first: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the matching messages of *part* in queue order, in the store's types.

    If it *is_first* of its topic in a query, doubts about the filter are told.

    Raises:
        StoreError: messages of the range were deleted since it was planned, and that is an error.
        ConfigError: the disk is on another machine, and the filter is a predicate.
        PredicateError: the predicate is not allowed, or failed on a message.
        ShardUnavailableError: the disk is on another machine, which does not answer.
    """
    if place.service is not None and not has_identity(place.data, place.uuid):
        if plan.subscription.expression_type == "CLASS":
            topic, queue_id = part.key
            raise ConfigError(
                f"topic {topic!r} queue {queue_id} is on machine {place.machine}, and where runs "
                "only beside the files; filter by tags or sql, or further with .where(…)"
            )
        yield from fetch_range(place, plan, part, warn, is_first=is_first)
        return
    if is_first:
        tell_doubts(place.data, plan, part, warn)
    read = read_store_range if place.is_store else read_range
    for found in read(place.data, plan, part, warn):
        yield found.batch
