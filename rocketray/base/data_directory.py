"""The choice of the data directory, the same for programs, commands, apps and Spark.

Order: the directory that is given, then ROCKETRAY_DATA of the environment, then the settings file
(settings_file.py), then ./rocketray-data.
An empty text is refused in both places: it comes from a variable that was never set, and would
mean the current directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rocketray.errors import ConfigError

from .settings_file import read_settings

DATA_VARIABLE = "ROCKETRAY_DATA"
DEFAULT_DATA = Path("rocketray-data")


def data_directory(
    given: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """Return the data directory, from *given*, else from *environ*, by default the process's.

    Raises:
        ConfigError: the path is empty, or not a path; or the settings file is wrong.
    """
    if given is None:
        text = (os.environ if environ is None else environ).get(DATA_VARIABLE)
        if text == "":
            raise ConfigError(
                f"{DATA_VARIABLE} is empty; set it to a node's data directory, or unset it"
            )
        return Path(text) if text is not None else read_settings(environ).data or DEFAULT_DATA
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"the data directory is {given!r:.80}; give a path, or leave it out")
    if given == "":
        raise ConfigError(
            f"the data directory is empty; name one, or leave it out to use {DATA_VARIABLE}, else "
            f"./{DEFAULT_DATA}"
        )
    return Path(given)
