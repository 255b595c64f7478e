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

from rocketray.actors.files.private_files import DATA_MODE, make_directory
from rocketray.actors.files.state_files import read_json, write_json
from rocketray.errors import ConfigError

__all__ = ["LOG", "DemoOptions", "RunDirectory", "open_run"]

_RUNS = Path("runs")
_DESCRIPTION = "demo.json"
LOG = "demo.log"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """*limit*: only so many rows. *resume*: the directory of an earlier run. *data*: of a node."""

    limit: int | None = None
    resume: Path | None = None
    data: Path | None = None


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of a run, absolute, and how many rows it sends (None: all)."""

    path: Path
    limit: int | None
    is_resumed: bool


def open_run(options: DemoOptions) -> RunDirectory:
    """Return the directory of a new run, or of the one to resume.

    Raises:
        ConfigError: there is no run to resume, or there is one where a new one was to begin.
    """
    if options.resume is not None:
        return _resumed(options, options.resume.resolve())
    now = datetime.now(UTC).astimezone()
    path = (options.data or _RUNS / now.strftime("%Y%m%d-%H%M%S-%f")[:-3]).resolve()
    if (path / _DESCRIPTION).exists():
        raise ConfigError(f"{path} has a run of the demo; resume it: --resume {path}")
    make_directory(path, DATA_MODE)
    write_json(path / _DESCRIPTION, {"version": 1, "limit": options.limit}, backup=False)
    return RunDirectory(path, options.limit, is_resumed=False)


def _resumed(options: DemoOptions, path: Path) -> RunDirectory:
    if options.data is not None and options.data.resolve() != path:
        raise ConfigError("--resume names the data directory already; leave --data out")
    description = read_json(path / _DESCRIPTION)
    if description is None:
        raise ConfigError(f"{path} is not a run of the demo: it has no {_DESCRIPTION}")
    limit = description.get("limit")
    if options.limit not in (None, limit):
        raise ConfigError(
            f"the run in {path} was started with --limit {limit or 'none'}; resume it without "
            "--limit"
        )
    return RunDirectory(path, limit, is_resumed=True)
