"""The calls about staged batches over Arrow Flight: their names, and their values as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa

from rocketray.errors import ConfigError
from rocketray.runtime.files.half_file import BatchName, Half

from .staging_api import StagedBatch, StagedCounts, StagedOverview, StagedWork

DECIDE, PUBLISH, IS_APPLIED, DROP = "decide-staged", "publish", "is-applied", "drop-staged"
OVERVIEW, QUEUES, UPLOAD = "staged", "queues", "half"
CHUNKS = pa.schema({"chunk": pa.large_binary()})
"""The schema of an upload: the bytes of a half, in order."""
# A half, of which each task of a batch has one, takes some 100 bytes of a decision: 600,000 tasks.
_REQUEST_MAX_BYTES = 64 * 1024 * 1024
_ParsedT = TypeVar("_ParsedT")


def parse(text: bytes, read: Callable[[Any], _ParsedT]) -> _ParsedT:
    """Return *read* of the JSON in a request.

    Raises:
        ConfigError: it is not such a request.
    """
    if len(text) > _REQUEST_MAX_BYTES:
        raise ConfigError(
            f"a request about staged batches has {len(text)} bytes, more than "
            f"{_REQUEST_MAX_BYTES}; write with fewer tasks: .coalesce(…)"
        )
    try:
        return read(json.loads(text))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"a request about staged batches is malformed ({error!r:.200}): the client is of "
            "another version of rocketray"
        ) from None


def batch_to_json(batch: StagedBatch) -> bytes:
    """Return the request that :func:`batch_from_json` reads."""
    return json.dumps(asdict(batch)).encode()


def batch_from_json(value: Mapping[str, Any]) -> StagedBatch:
    """Return the batch of :func:`batch_to_json`; ``parse`` turns its errors into ConfigError."""
    halves = halves_from_json(value["halves"])
    name = name_from_json(value["name"])
    return StagedBatch(name, str(value["run"]), halves, bool(value["is_single"]))


def name_from_json(value: Any) -> BatchName:
    """Return the name of a batch, sent as [writer, number]."""
    writer, number = value
    return BatchName(str(writer), int(number))


def halves_from_json(value: Any) -> tuple[Half, ...]:
    """Return halves, sent as [name, bytes, messages] each."""
    return tuple(Half(str(name), int(size), int(count)) for name, size, count in value)


def overview_to_json(overview: StagedOverview) -> bytes:
    """Return the reply that :func:`overview_from_json` reads."""
    return json.dumps(asdict(overview)).encode()


def overview_from_json(value: Mapping[str, Any]) -> StagedOverview:
    """Return the overview of :func:`overview_to_json`."""
    work = (StagedWork(**{**each, "batch": BatchName(*each["batch"])}) for each in value["work"])
    counts = StagedCounts(**value["counts"])
    return StagedOverview(tuple(work), int(value["total"]), counts, tuple(value["problems"]))
