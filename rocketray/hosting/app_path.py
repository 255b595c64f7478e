"""Apps named by import path, ``"module:app"``: their import, their source, and failed imports."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import faust

from rocketray.errors import ConfigError
from rocketray.topology.app.app import App
from rocketray.topology.app.own_code import is_installed


@dataclass(frozen=True, slots=True)
class AppSource:
    """The file of an app's module, and the directory from which it is imported."""

    file: Path
    directory: Path


def load_app(path: str, advice: str = "add its directory to PYTHONPATH") -> App:
    """Import ``"module:app"``; raise :class:`ConfigError` with the reason if that fails.

    *advice* says what else to do about a module that is not found.
    """
    module_name, separator, name = path.partition(":")
    if not (module_name and separator and name):
        raise ConfigError(f"an app is named as module:app, for example trade:app, not {path!r}")
    is_file = module_name.endswith(".py")
    if is_file or not all(part.isidentifier() for part in module_name.split(".")):
        place = Path(module_name)
        there = "" if place.parent == Path() else f"cd {place.parent} && "
        raise ConfigError(
            f"app {path!r}: {module_name!r} is not a module name; go to its directory and name it "
            f"as Python imports it: {there}rocketray up {place.stem}:{name}"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"app {path!r}: {_why_not_imported(module_name, error, advice)}"
        ) from error
    app = getattr(module, name, None)
    if isinstance(app, App):
        return app
    if isinstance(app, faust.App):
        raise ConfigError(
            f"app {path!r} is a stock faust.App, which runs with: faust -A {module_name} worker; "
            "to run it as an actor, make it a rocketray.App"
        )
    apps = [f"{module_name}:{found}" for found, each in vars(module).items() if type(each) is App]
    raise ConfigError(
        f"app {path!r}: {module_name} has no rocketray.App named {name!r}; it has "
        f"{', '.join(apps) or 'none at all'}"
    )


def _why_not_imported(module: str, error: Exception, advice: str) -> str:
    """Return a user's explanation of *error*, raised by the import of *module*, and its place."""
    # The module itself is missing, or a package on its way; else it misses one of its own imports.
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"{error}; name a module that can be imported from here, or {advice}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SyntaxError):
        return f"{module} cannot be imported: {error}"
    what_to_do = ""
    if isinstance(error, ModuleNotFoundError):
        what_to_do = f"; install what has it into {sys.prefix}, or {advice}"
    return (
        f"{module} cannot be imported: {type(error).__name__}: {error} "
        f"({place.filename}:{place.lineno}){what_to_do}"
    )


def import_from(directory: Path | str, instead_of: Collection[str] = ()) -> None:
    """Put *directory* first on the import path, and remove the directories *instead_of* it."""
    place = str(directory)
    # In place: other modules may hold this very list.
    sys.path[:] = [place, *(each for each in sys.path if each not in {place, *instead_of})]


def source_of(path: str) -> AppSource | None:
    """Return the source of the app at *path*, which is imported; None if it is installed."""
    name = path.partition(":")[0]
    file = Path(str(sys.modules[name].__file__)).absolute()
    if is_installed(file):
        return None
    is_package = hasattr(sys.modules[name], "__path__")
    return AppSource(file, file.parents[name.count(".") + is_package])
