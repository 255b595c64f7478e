"""Another user of this machine: Python code that runs without this user's rights.

Only root can become somebody else; as another user the tests that need it are skipped. A process
that leaves uid 0 loses its capabilities, so it may do what any local user may do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.harness.machine import needs

STRANGER_UID = 65534

needs_stranger = needs("root")

_BECOME_STRANGER = f"""
import json, os, sys
os.setgroups([])
os.setgid({STRANGER_UID})
os.setuid({STRANGER_UID})
def attempt(action, *arguments):
    try:
        action(*arguments)
    except Exception as error:
        return type(error).__name__
"""


@contextmanager
def place_of_all() -> Iterator[Path]:
    """A directory that every user can enter, as a node's directory may lie in one."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def as_stranger(code: str, *arguments: object, stdin: str = "", imports: str = "json") -> Any:
    """What *code*, which prints JSON, printed as another user; *arguments* are its ``sys.argv[1:]``.

    *imports* are imported before: nobody else may be able to enter where this Python lies.
    ``attempt(action, ...)`` is there for the code: the name of the error that it raised, or None.
    """
    with place_of_all() as home:
        os.chown(home, STRANGER_UID, STRANGER_UID)
        done = subprocess.run(
            [sys.executable, "-c", f"import {imports}\n{_BECOME_STRANGER}{code}", *map(str, arguments)],
            cwd="/", env={**os.environ, "HOME": str(home), "TMPDIR": str(home)},
            input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
