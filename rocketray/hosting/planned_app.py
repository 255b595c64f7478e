"""The import of a plan's app in the process of a host."""

from __future__ import annotations

import os
from pathlib import Path

from rocketray.runtime.ray_process.ray_runtime import starter_paths
from rocketray.topology.app.app import App

from .app_path import import_from, load_app
from .host_plan import HostPlan

_UPLOADED = "see that no .gitignore or .rayignore leaves it out of the upload"


def load_planned(plan: HostPlan) -> App:
    """Import the app of *plan*, from its directory, from the archive, or as it is installed.

    Raises:
        ConfigError: it cannot be imported.
    """
    if plan.directory is not None:
        import_from(plan.directory)
    if plan.code is None:
        return load_app(plan.path)
    # Ray puts the paths of the program that started the host first, and they may exist here, with
    # other code.
    import_from(Path.cwd(), instead_of=starter_paths())
    return load_app(plan.path, _UPLOADED)


def enter_directory(plan: HostPlan) -> None:
    """Make the directory of *plan* the current one, where relative paths mean what they mean there.

    An archive stays the current directory: Ray has made it that.
    """
    if plan.directory is not None:
        os.chdir(plan.directory)
