"""The Spark session that an app's sinks share. Imports no pyspark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketray.errors import ConfigError

_MEMORY = re.compile(r"[1-9]\d{0,6}[mg]\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The size of the Spark session of an app's sinks.

    ``cores`` tasks run at the same time; ``memory`` is the heap of the JVM, such as ``"1g"``;
    ``settings`` are more of Spark's own. ``num_cpus`` is how many CPUs of Ray the host of
    ``rocketray up`` reserves: set it where the Ray also runs other work.
    """

    cores: int = 2
    memory: str = "1g"
    settings: Mapping[str, str] = field(default_factory=dict)
    num_cpus: float = 0

    def __post_init__(self) -> None:
        if self.cores < 1 or self.num_cpus < 0:
            raise ConfigError(f"{self}: cores must be 1 or more, and num_cpus 0 or more")
        if not _MEMORY.match(self.memory):
            raise ConfigError(f"memory={self.memory!r} of Spark; write it as 512m or 2g")
