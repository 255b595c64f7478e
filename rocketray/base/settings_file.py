"""The settings file ``rocketray.toml``: defaults for programs and commands, in TOML.

    data = "/srv/trade"          # relative paths are relative to the file
    [start]                      # the options of a command, by their names
    ack = "disk"
    fetch-port = 7070

It is the file that ROCKETRAY_CONFIG names, else ``rocketray.toml`` of the current directory, else
there is none. An option takes precedence over the environment, that over the file, and the file
over a default. ``data``, ``cluster`` and ``ray-address`` at its top choose the node, also for
programs; tables are for commands alone.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rocketray.errors import ConfigError

from .meant import meant

CONFIG_VARIABLE = "ROCKETRAY_CONFIG"
_NAME = "rocketray.toml"
_MAX_BYTES = 64 * 1024  # far more than all options of all commands take
_TOP = ("data", "cluster", "ray-address")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a settings file says; without one, nothing, and ``path`` is None.

    ``commands`` has a table for each command, with values by option, and tables of sub-commands.
    """

    path: Path | None = None
    data: Path | None = None
    cluster: str | None = None
    ray_address: str | None = None
    commands: Mapping[str, Any] = field(default_factory=dict)


def read_settings(environ: Mapping[str, str] | None = None) -> SettingsFile:
    """Return the settings of this process; *environ* is by default its own.

    Raises:
        ConfigError: the file that ROCKETRAY_CONFIG names cannot be read, or a file is no TOML, is
            too large, or has a wrong value or an unknown name at its top.
    """
    named = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    if named == "":
        raise ConfigError(f"{CONFIG_VARIABLE} is empty; set it to a settings file, or unset it")
    path = Path(_NAME if named is None else named).absolute()
    try:
        status = path.stat()
    except OSError as error:
        if named is None:
            return SettingsFile()
        raise ConfigError(
            f"{path}, which {CONFIG_VARIABLE} names: {error.strerror}; correct or unset the variable"
        ) from error
    return _read(path, status.st_mtime_ns, status.st_size)


# The time and size are arguments so that a changed file is read again: a process asks at each
# choice of a node.
@lru_cache(maxsize=4)
def _read(path: Path, _mtime_ns: int, size: int) -> SettingsFile:
    """Read a file once for each of its versions."""
    if size > _MAX_BYTES:
        raise ConfigError(f"{path} has {size} bytes; a settings file has at most {_MAX_BYTES}")
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    texts: dict[str, str] = {}
    commands = {}
    for written, value in values.items():
        # Options have hyphens on the command line and underscores in Python; both spellings are
        # known.
        name = written.replace("_", "-")
        if isinstance(value, dict):
            commands[name] = value
        elif name not in _TOP:
            raise ConfigError(f"{path}: unknown setting {written!r} at the top; {_instead(name)}")
        elif not isinstance(value, str) or not value:
            raise ConfigError(f"{path}: {written} is {value!r:.60}; give a text in quotes")
        else:
            texts[name] = value
    data = texts.get("data")
    return SettingsFile(
        path,
        None if data is None else path.parent / data,
        texts.get("cluster"),
        texts.get("ray-address"),
        commands,
    )


def _instead(name: str) -> str:
    near = meant(name, _TOP)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(_TOP)}, and a table for each command, such as [start]"
