"""A JAVA_HOME whose ``bin/java`` drops the one argument that reduced Java runtimes refuse.

One directory per runtime in the user's cache, named after the runtime's path and version, so an
upgrade creates a new one. It holds a shell script and nothing else.

Invariant: the script appears whole or not at all, under its final name, executable; any number of
processes may create it at the same time.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["VECTOR_ARGUMENT", "cache_directory", "make_shim"]

VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
_SCRIPT = """\
#!/bin/sh
# Made by rocketray: Spark always asks for a module that this Java runtime was built without.
for argument do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {program} "$@"
"""


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the user's cache directory, by the XDG rules."""
    root = Path(environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():  # by the rules, a relative one is ignored
        home = environ.get("HOME")
        root = (Path(home) if home else Path.home()) / ".cache"
    return root / "rocketray"


def make_shim(program: Path, version: int, cache: Path) -> Path:
    """Return the JAVA_HOME in *cache* that wraps *program*; create it if it does not exist.

    Raises:
        OSError: the cache cannot be written.
    """
    key = hashlib.sha256(f"{program}\n{version}".encode()).hexdigest()[:16]
    home = cache / f"java-{version}-{key}"
    script = home / "bin" / "java"
    content = _SCRIPT.format(dropped=VECTOR_ARGUMENT, program=shlex.quote(str(program)))
    if not _is_made(script, content):
        script.parent.mkdir(parents=True, exist_ok=True)
        _write_executable(script, content)
    return home


def _is_made(script: Path, content: str) -> bool:
    try:
        return script.read_text() == content and os.access(script, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def _write_executable(script: Path, content: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix="java.", dir=script.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        temporary.chmod(0o755)
        temporary.replace(script)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
