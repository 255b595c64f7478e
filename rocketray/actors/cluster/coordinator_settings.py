"""What a coordinator is told when its node starts, kept in its register for a standby.

    settings    {"version": 1, "home": {"data": …}, "rules": {…}, "shardSizes": {NAME: N},
                 "queuesPerProcess": N, "scrubRate": N}

Each start on the first disk saves them; a coordinator that a standby starts takes them from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rocketray.base.config import SCRUB_RATE
from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import json_fields, read_value
from rocketray.base.names import QueuesPerProcess, check_queues_per_process
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.runtime.files.file_documents import Documents, SavedDocuments
from rocketray.runtime.files.home import Home

_NAME = "settings"
_FORM = FileForm("settings")


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The settings of a cluster.

    ``home`` is that of the first disk, whose queues have no disk in the catalog. ``shard_sizes``
    are fields of :class:`~rocketray.base.config.StoreConfig` for new shards,
    ``queues_per_process`` is for new topics, and ``scrub_rate`` is that of each shard process, in
    bytes a second.
    """

    home: Home
    rules: FilterRules = FilterRules()  # noqa: RUF009 - it is frozen
    shard_sizes: Mapping[str, int] = field(default_factory=dict)
    queues_per_process: QueuesPerProcess = None
    scrub_rate: int = SCRUB_RATE

    @classmethod
    def load(cls, documents: SavedDocuments) -> CoordinatorSettings | None:
        """Return the settings of the last start on the first disk, None if there are none.

        Raises:
            StoreError: the document is damaged, or of another version.
        """
        return documents.load(_NAME, _parsed)

    def save(self, documents: Documents) -> None:
        """Save the settings unless they are saved already."""
        if self.load(documents) == self:
            return
        content = {**json_fields(self), "home": asdict(self.home)}
        documents.save(_NAME, _FORM.of(content))


def _parsed(value: dict[str, Any]) -> CoordinatorSettings:
    value = _FORM.content(value)
    return CoordinatorSettings(
        read_value(Home, value["home"], str),
        read_value(FilterRules, value["rules"]),
        {str(name): int(size) for name, size in value["shardSizes"].items()},
        check_queues_per_process(value["queuesPerProcess"]),
        int(value["scrubRate"]),
    )
