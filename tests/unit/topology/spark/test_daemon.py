from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from rocketray.topology.spark import daemon
names = daemon.preload()
from rocketray.kernels import consume_queue
print(all(name in sys.modules for name in [*names, "pyarrow"]), consume_queue.match_tags.is_compiled)
"""


def test_workers_find_loaded_what_they_read_with() -> None:
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "True True\n"
