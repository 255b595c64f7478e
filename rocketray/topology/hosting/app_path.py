"""Apps named by import path, ``"module:app"``, and the explanation of failed imports."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

import faust

from rocketray.errors import ConfigError
from rocketray.topology.app.app import App

__all__ = ["import_from", "load_app"]


def load_app(path: str) -> App:
    """Import ``"module:app"``; raise :class:`ConfigError` with the reason if that fails."""
    module_name, separator, name = path.partition(":")
    if not (module_name and separator and name):
        raise ConfigError(f"an app is named as module:app, for example trade:app, not {path!r}")
    if not all(part.isidentifier() for part in module_name.split(".")):
        place = Path(module_name)
        raise ConfigError(
            f"app {path!r}: {module_name!r} is not a module name; go to its directory and name it "
            f"as Python imports it: cd {place.parent} && rocketray up {place.stem}:{name}"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"app {path!r}: {_why_not_imported(module_name, error)}") from error
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


def _why_not_imported(module: str, error: Exception) -> str:
    """Return a user's explanation of *error*, raised by the import of *module*, and its place."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return (
            f"{error}; name a module that can be imported from here, or add its directory to "
            "PYTHONPATH"
        )
    place = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SyntaxError):
        return f"{module} cannot be imported: {error}"
    return (
        f"{module} cannot be imported: {type(error).__name__}: {error} "
        f"({place.filename}, line {place.lineno})"
    )


def import_from(directory: Path | str) -> None:
    """Add *directory* to the import path, before other modules of the same names."""
    place = str(directory)
    if place not in sys.path:
        sys.path.insert(0, place)
