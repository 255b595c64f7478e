"""What the process imports of which forked programs are copies (forked.py)."""

from __future__ import annotations

import faust
import pyarrow as pa
import ray

import rocketray
from rocketray.cli.application import command_tree
from rocketray.kernels import warm

PARTS = (faust, pa, ray, rocketray.App, rocketray.Client, rocketray.Producer)
"""Those that every second program uses."""

warm()
command_tree()
