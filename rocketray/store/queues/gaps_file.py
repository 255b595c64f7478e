"""``gaps.json``, in the store's directory: the gaps of its queues (queue_gaps.py).

    {"version": 1, "queues": {"Trade/0": [[12, 1036]]}}

It is written before a queue continues behind a gap. If it is lost, a repair finds the gaps again:
the queue offsets in the log leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import orjson

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import read_value
from rocketray.base.limits import Limit
from rocketray.errors import CorruptRecordError
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem, replace_file

from .queue_gaps import NO_GAPS, OFFSET_MAX, QueueGaps

GAPS_FILE = "gaps.json"
_FORM = FileForm(GAPS_FILE)
_Offset = Annotated[int, Limit(OFFSET_MAX - 1)]
_Pairs = tuple[tuple[_Offset, _Offset], ...]
_MAX_BYTES = 64 * 1024 * 1024  # a gap takes some 20 bytes, and a power failure leaves one a queue


def read_gaps(
    directory: Path, file_system: FileSystem = SYSTEM_FILES
) -> dict[tuple[str, int], QueueGaps]:
    """Return the gaps of the queues in the store *directory* that have any.

    Raises:
        CorruptRecordError: the file is damaged.
        UnknownVersionError: a later release wrote it.
    """
    path = directory / GAPS_FILE
    try:
        value = _FORM.content(orjson.loads(file_system.read(path, _MAX_BYTES)), path)
        found = read_value(dict[str, _Pairs], value["queues"])
        return {_queue(name): QueueGaps(pairs) for name, pairs in found.items()}
    except FileNotFoundError:
        # Most stores have no gap, and so no file.
        return {}
    except (LookupError, ValueError) as error:
        reason = f"{error}; have the gaps found in the log: rocketray store recover {directory}"
        raise CorruptRecordError(str(path), 0, reason) from None


def gaps_of(
    directory: Path, topic: str, queue_id: int, file_system: FileSystem = SYSTEM_FILES
) -> QueueGaps:
    """Return the gaps of one queue of the store *directory*; raise as :func:`read_gaps`."""
    return read_gaps(directory, file_system).get((topic, queue_id), NO_GAPS)


def write_gaps(
    directory: Path, gaps: Mapping[tuple[str, int], QueueGaps], file_system: FileSystem
) -> None:
    """Write the file; durable on return."""
    queues = {f"{topic}/{queue_id}": held.pairs for (topic, queue_id), held in gaps.items()}
    content = orjson.dumps(_FORM.of({"queues": queues}))
    replace_file(file_system, directory / GAPS_FILE, content)


def _queue(name: str) -> tuple[str, int]:
    topic, queue_id = name.rsplit("/", 1)
    return topic, int(queue_id)
