"""The log of Spark's file sinks: which files finished micro-batches wrote.

A killed query leaves files that no batch has committed, some of them empty, beside the committed
ones. Those are listed in ``_spark_metadata``: one file a batch, named after its number, and at
intervals one that sums up all before it, named ``<number>.compact``. Each starts with a line ``v1``
and has a JSON object a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rocketray.errors import ConfigError, StoreError

_METADATA = "_spark_metadata"
_LOG_NAME = re.compile(r"(\d{1,18})(\.compact)?\Z")
_LOG_MAX_BYTES = 256 * 1024 * 1024  # a million files, of some 250 bytes each


def committed_files(path: str | Path) -> list[Path]:
    """Return the files under *path* that finished micro-batches wrote, in the order of writing.

    Raises:
        ConfigError: no streaming query has ever written to *path*.
        StoreError: the sink's log is broken or of an unknown form.
    """
    metadata = Path(path) / _METADATA
    if not metadata.is_dir():
        raise ConfigError(
            f"{path} has no {_METADATA}, so no streaming query has written there; give the "
            "directory of the sink's .option('path', …)"
        )
    added: dict[Path, None] = {}
    for log in _logs(metadata):
        for file, action in _entries(log):
            if action == "delete":
                added.pop(file, None)
            else:
                added[file] = None
    return list(added)


def _logs(metadata: Path) -> list[Path]:
    """Return the newest summary and the batches after it, in order, none missing."""
    compact: dict[int, Path] = {}
    single: dict[int, Path] = {}
    for file in metadata.iterdir():
        match = _LOG_NAME.match(file.name)
        if match:
            (compact if match[2] else single)[int(match[1])] = file
    last = max(compact, default=-1)
    after = sorted(number for number in single if number > last)
    if after != list(range(last + 1, last + 1 + len(after))):
        raise StoreError(f"{metadata}: a batch after {last} is missing; restore it from a copy")
    summary = [compact[last]] if compact else []
    return summary + [single[number] for number in after]


def _entries(log: Path) -> Iterator[tuple[Path, str]]:
    size = log.stat().st_size
    if size > _LOG_MAX_BYTES:
        raise StoreError(f"{log} has {size} bytes; a sink's log has at most {_LOG_MAX_BYTES}")
    version, *lines = log.read_text(encoding="utf-8").splitlines() or [""]
    if version != "v1":
        raise StoreError(f"{log} has version {version[:20]!r}; only v1 is supported")
    for line in lines:
        try:
            entry = json.loads(line)
            url = urlsplit(entry["path"])
            action = str(entry["action"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{log} has an invalid entry: {error!r}") from None
        if url.scheme != "file":
            raise StoreError(f"{log} names {entry['path']!r}; only files of this machine are read")
        yield Path(unquote(url.path)), action
