"""Lost settings of shards: ``store.json``, written again by ``rocketray store recover``.

All settings are found and checked before the first file is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.arguments.store_directory import shard_directories
from rocketray.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from rocketray.base.config import StoreConfig

StoreHostOption = Annotated[
    str | None,
    typer.Option(
        "--store-host",
        metavar="ADDRESS:PORT",
        help="The store host of a shard that lost its store.json, if its node's catalog is not at "
        "hand.",
    ),
]


@dataclass(frozen=True, slots=True)
class RestoredSettings:
    """The settings that were written to *directory*; ``source`` is that of the store host."""

    directory: Path
    config: StoreConfig
    source: str

    @property
    def store_host(self) -> str:
        """The store host as text."""
        return f"{self.config.store_host[0]}:{self.config.store_host[1]}"


@dataclass(frozen=True, slots=True)
class _Place:
    """A shard's directory below a node's data directory."""

    data: Path
    topic: str
    queue_id: int


def restore_lost_settings(
    directory: Path, store_host: str | None, index_hash_slots: int | None
) -> list[RestoredSettings]:
    """Write the lost settings of the shard *directory*, or of shards in it.

    Raises:
        ConfigError: the store host is unknown or not that of the records, or a size is unknown.
        StoreError: a directory is open, or cannot be read.
    """
    from rocketray.store.files.store_settings import restore_settings  # noqa: PLC0415 - orjson
    from rocketray.store.recovery.lost_settings import has_lost_settings  # noqa: PLC0415 - NumPy

    shards = shard_directories(directory)
    if shards and store_host is not None:
        raise ConfigError(f"--store-host is for one shard, as {shards[0]}; {directory} has several")
    found = [
        _find(path, store_host, index_hash_slots)
        for path in shards or [directory]
        if has_lost_settings(path)
    ]
    for one in found:
        restore_settings(one.directory, one.config)
    return found


def _find(path: Path, given: str | None, index_hash_slots: int | None) -> RestoredSettings:
    from rocketray.store.recovery.lost_settings import (  # noqa: PLC0415 - NumPy
        check_records,
        find_settings,
    )

    place = _place_of(path.resolve())
    if given is None:
        source, host, is_shared = _of_catalog(path, place)
    else:
        source, host, is_shared = "--store-host", _parse_host(given), False
    models = _models(place, is_shared=is_shared)
    config = find_settings(path, host, models, index_hash_slots=index_hash_slots)
    check_records(path, config, (place.topic, place.queue_id) if place else None)
    return RestoredSettings(path, config, source)


def _place_of(path: Path) -> _Place | None:
    if len(path.parts) < 4 or path.parents[1].name != "shards" or not path.name.isdecimal():
        return None
    return _Place(path.parents[2], path.parent.name, int(path.name))


def _of_catalog(path: Path, place: _Place | None) -> tuple[str, tuple[str, int], bool]:
    """Return the path of the catalog, a shard's store host, and whether its process is shared."""
    from rocketray.broker.topics.catalog import TopicCatalog  # noqa: PLC0415 - not for --help
    from rocketray.runtime.files.paths import config_directory  # noqa: PLC0415 - not for --help

    if place is None:
        raise ConfigError(
            f"{path} has no valid store.json, and is not in a node's data directory, as "
            "shards/TOPIC/QUEUE, whose catalog knows its store host; give it with --store-host"
        )
    catalog = config_directory(place.data) / "topics.json"
    topic = TopicCatalog.load(place.data).topics.get(place.topic)
    if topic is None or place.queue_id >= topic.queues:
        raise ConfigError(
            f"{path} has no valid store.json, and {catalog} has no queue "
            f"{place.topic}/{place.queue_id} whose store host it could get; give it with "
            "--store-host"
        )
    return str(catalog), topic.store_hosts[place.queue_id], not topic.processes


def _models(place: _Place | None, *, is_shared: bool) -> list[StoreConfig]:
    """Return the settings of other shards of the node, and the defaults; the likeliest first."""
    from rocketray.base.config import StoreConfig  # noqa: PLC0415 - not needed for --help
    from rocketray.broker.shards.shard_process import SHARED_FILE_SIZES  # noqa: PLC0415 - Arrow

    sizes: dict[str, Any] = dict(SHARED_FILE_SIZES)
    defaults = [StoreConfig(), StoreConfig(**sizes)]
    others = shard_directories(place.data) if place else []
    same = [path for path in others if place and path.parent.name == place.topic]
    return [
        *_settings_of(same),
        *(reversed(defaults) if is_shared else defaults),
        *_settings_of(others),
    ]


def _settings_of(paths: Iterable[Path]) -> list[StoreConfig]:
    from rocketray.store.files.store_settings import read_settings  # noqa: PLC0415 - orjson

    found = []
    for path in paths:
        try:
            config = read_settings(path)
        except StoreError:
            continue  # damaged, too
        if config is not None:
            found.append(config)
    return found


def _parse_host(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal():
        raise ConfigError(f"--store-host {text!r:.80} is not ADDRESS:PORT, such as 10.0.0.1:10911")
    return address, int(port)
