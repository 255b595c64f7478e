"""The log of an actor of the node: shown, noted in the data directory, and limited in size."""

from __future__ import annotations

from rocketray.runtime.files.home import Home
from rocketray.runtime.process_logs.log_output import show_in_worker
from rocketray.runtime.ray_process.ray_runtime import actor_name, output_files


def show_log(home: Home) -> None:
    """Log what this actor of *home* does, where ``rocketray logs`` finds it.

    Raises as :meth:`Home.directory`: nothing is created where the directory is not.
    """
    data, files = home.directory(), output_files()
    if files:
        show_in_worker(data, actor_name(), files)
