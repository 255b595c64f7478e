"""Mounts that only one process and what it starts see."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from support.harness import machine


def with_mounts(script: str, *arguments: object, names: Sequence[str] = ()) -> list[str]:
    """The command before one that sees the mounts that *script* makes of its arguments.

    *names* are options of unshare for what else the command is to have of its own. Where the system
    allows none of it the test is skipped.
    """
    machine.require("mounts")
    rights = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    shell = ["sh", "-c", f'set -e\n{script}\nshift {len(arguments)}; exec "$@"', "sh"]
    command = ["unshare", *rights, "--mount", *names, *shell, *map(str, arguments)]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        machine.skip("mounts", tried.stderr.strip())
    return command
