"""Mounts that only one process and what it starts see."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

__all__ = ["with_mounts"]


def with_mounts(
    tested: str, script: str, *arguments: object, names: Sequence[str] = ()
) -> list[str]:
    """The command before one that sees the mounts that *script* makes of its arguments.

    *names* are options of unshare for what else the command is to have of its own. Where the system
    allows none of it the test is skipped: *tested* is what stays untested.
    """
    rights = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    shell = ["sh", "-c", f'set -e\n{script}\nshift {len(arguments)}; exec "$@"', "sh"]
    command = ["unshare", *rights, "--mount", *names, *shell, *map(str, arguments)]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"NOT TESTED {tested}: there is no unshare command here")
    if tried.returncode:
        pytest.skip(
            f"NOT TESTED {tested}: this user may not mount in a name space of its own, run the "
            f"tests as root: {tried.stderr.strip()}"
        )
    return command
