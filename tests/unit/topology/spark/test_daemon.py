from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from rocketray.topology.spark import daemon
names = daemon.preload()
print(all(name in sys.modules for name in [*names, "pyarrow", "rocketray.kernels.consume_queue"]))
"""


def test_workers_find_loaded_what_they_read_with() -> None:
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "True\n"
