"""How far a query is behind, under the names of the metrics of Spark's Kafka source.

Spark 4.3 takes no metrics from a Python source, so ``progress.sources[].metrics`` is empty. It does
report the offsets that a micro-batch came to, and the latest ones: their difference is the lag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rocketray.queries.ranges.offset_rules import ORIGIN


def lag_metrics(progress: Any) -> list[dict[str, str]]:
    """Return the metrics of each source in a query's progress; {} for sources of other formats.

    Args:
        progress: ``query.lastProgress``, or ``event.progress`` in a ``StreamingQueryListener``.

    Returns:
        ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and ``avgOffsetsBehindLatest``, as
        text, as Kafka's source has them. Offsets are counted before the filter.
    """
    return [_metrics(source) for source in progress["sources"]]


def _metrics(source: Any) -> dict[str, str]:
    end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
    if ORIGIN not in end or not latest:  # of another source, or nothing was read yet
        return {}
    behind = [
        max(0, offset - end.get(topic, {}).get(queue_id, 0))
        for topic, queues in latest.items()
        for queue_id, offset in queues.items()
    ]
    values = {"avg": sum(behind) / len(behind), "max": max(behind), "min": min(behind)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in values.items()}


def _offsets(text: str | None) -> Mapping[str, Any]:
    value = json.loads(text) if text else None
    return value if isinstance(value, dict) else {}
