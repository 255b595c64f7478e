"""Scripts in the user's cache that stand for another program.

A script appears whole or not at all, under its final name, executable; any number of processes may
create it at the same time. One with another content is replaced.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the user's cache directory, by the XDG rules."""
    root = Path(environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():  # by the rules, a relative one is ignored
        home = environ.get("HOME")
        root = (Path(home) if home else Path.home()) / ".cache"
    return root / "rocketray"


def make_script(script: Path, content: str) -> Path:
    """Return *script*, which has *content* and can be executed; create it if it does not exist.

    Raises:
        OSError: its directory cannot be written.
    """
    if not _is_made(script, content):
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_executable(script, content)
    return script


def _is_made(script: Path, content: str) -> bool:
    try:
        return script.read_text() == content and os.access(script, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def _write_executable(script: Path, content: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix="new.", dir=script.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        temporary.chmod(0o755)
        temporary.replace(script)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
