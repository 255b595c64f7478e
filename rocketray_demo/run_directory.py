"""A run of the demo and its directory, which is also the data directory of the node it runs on.

RUN/demo.json        the options
RUN/config, shards   the node's
RUN/agents           the agents' counts
RUN/late-from-jfk.parquet, checkpoints, spark     the sink's
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rocketray.errors import ConfigError
from rocketray.runtime.files.private_files import DATA_MODE, make_directory
from rocketray.runtime.files.state_files import read_json, write_json

_RUNS = Path("runs")
_DESCRIPTION = "demo.json"
LOG = "demo.log"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of a run, absolute, and how many rows it sends (None: all)."""

    path: Path
    limit: int | None
    is_resumed: bool


def open_run(
    *, limit: int | None = None, resume: Path | None = None, data: Path | None = None
) -> RunDirectory:
    """Return the directory of a new run, or of the one to *resume*.

    *limit*: send only so many rows. *data*: the data directory of a node.

    Raises:
        ConfigError: there is no run to resume, or there is one where a new one was to begin.
    """
    if resume is not None:
        return _resumed(resume.resolve(), limit, data)
    now = datetime.now(UTC).astimezone()
    # Without the last three digits of the microseconds.
    path = (data or _RUNS / now.strftime("%Y%m%d-%H%M%S-%f")[:-3]).resolve()
    if (path / _DESCRIPTION).exists():
        raise ConfigError(f"{path} has a run of the demo; resume it: --resume {path}")
    make_directory(path, DATA_MODE)
    write_json(path / _DESCRIPTION, {"version": 1, "limit": limit}, backup=False)
    return RunDirectory(path, limit, is_resumed=False)


def _resumed(path: Path, wanted: int | None, data: Path | None) -> RunDirectory:
    if data is not None and data.resolve() != path:
        raise ConfigError("--resume names the data directory already; leave --data out")
    description = read_json(path / _DESCRIPTION)
    if description is None:
        raise ConfigError(f"{path} is not a run of the demo: it has no {_DESCRIPTION}")
    limit = description.get("limit")
    if wanted not in (None, limit):
        raise ConfigError(
            f"the run in {path} was started with --limit {limit or 'none'}; resume it without "
            "--limit"
        )
    return RunDirectory(path, limit, is_resumed=True)
