"""The defaults of options from the settings file, in the form that click takes them.

The file names an option as the command line does, without its dashes in front; click wants the name
of the parameter. Only commands that are loaded can be checked: ``rocketray doctor`` loads all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rocketray.base.meant import meant
from rocketray.base.settings_file import SettingsFile
from rocketray.errors import ConfigError

_OF_THE_NODE = ("data", "cluster", "ray-address")  # one node for all commands: set once, at the top
_NEVER = ("help", "json", "version")  # as defaults, they would change what every script gets


def option_defaults(
    tree: Any, settings: SettingsFile, known: Collection[str] = ()
) -> dict[str, Any]:
    """Return the defaults of the commands below *tree*; those that are only *known* are left out.

    Raises:
        ConfigError: there is no such command or option, or an option cannot have that value.
    """
    if settings.path is None:
        return {}
    return _tables(tree, settings.commands, settings.path, "", known)


def _tables(
    tree: Any, tables: Mapping[str, Any], path: Path, above: str, known: Collection[str] = ()
) -> dict[str, Any]:
    commands = getattr(tree, "commands", {})
    found = {}
    for name, values in tables.items():
        where = f"{above}{name}"
        if name in commands and isinstance(values, dict):
            below = commands[name]
            is_group = hasattr(below, "commands")
            make = _tables if is_group else _options
            found[name] = make(below, values, path, f"{where}." if is_group else where)
        elif name not in known:
            near = meant(name, [*commands, *known])
            advice = f"did you mean [{above}{near[0]}]?" if near else "see: rocketray --help"
            raise ConfigError(f"{path}: there is no command for [{where}]; {advice}")
    return found


def _options(command: Any, values: Mapping[str, Any], path: Path, where: str) -> dict[str, Any]:
    names = {
        option.removeprefix("--"): parameter
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--") and option.removeprefix("--") not in _NEVER
    }
    found = {}
    for written, value in values.items():
        name = written.replace("_", "-")
        if name in _OF_THE_NODE and where != "start":
            raise ConfigError(f"{path}: {written} in [{where}]; put it at the top of the file")
        if name not in names:
            near = meant(name, names)
            advice = f"did you mean {near[0]}?" if near else f"see: rocketray {where} --help"
            raise ConfigError(f"{path}: unknown setting {written!r} in [{where}]; {advice}")
        given = _given(names[name], value, f"{path}: {written} in [{where}]")
        is_negation = f"--{name}" in names[name].secondary_opts  # ``no-…`` of a flag
        found[str(names[name].name)] = not given if is_negation else given
    return found


def _given(parameter: Any, value: Any, what: str) -> Any:
    """Return a value of the file as the command line gives it: as text, but for a flag.

    What reads an option, such as ``5`` of ``--delay``, then has to know one form of it.
    """
    many = parameter.multiple
    given = value if isinstance(value, list) and many else [value]
    if not {*map(type, given)} <= ({bool} if parameter.is_flag else {str, int, float}):
        form = "true or false" if parameter.is_flag else "a text or a number"
        more = ", or a list of them" if many else ""
        raise ConfigError(f"{what} is {value!r:.60}; give {form}{more}")
    if parameter.is_flag:
        return value
    return [*map(str, given)] if many else str(value)
