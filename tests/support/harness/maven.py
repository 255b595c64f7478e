"""Jars from Maven Central, brought once into ``.cache``, for the tests and benchmarks that need them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .source_tree import ROOT

_CACHE = ROOT / ".cache"
_MAVEN_S = 600


class MavenError(Exception):
    """The jars cannot be had, and why."""


def maven_jars(name: str, artifacts: Sequence[str]) -> Path:
    """The directory *name* of the cache, with those artifacts and what they need.

    An artifact is ``group:artifact:version``. The directory appears when all jars are there.
    """
    found = _CACHE / name
    if found.is_dir():
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenError("install Maven (mvn)")
    coming = found.with_suffix(".part")
    coming.mkdir(parents=True, exist_ok=True)
    project = coming.with_suffix(".pom.xml")
    project.write_text(_project(artifacts))
    command: list[str | Path] = [maven, "-q", "-B", "-f", project, "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={coming}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_S, check=False)
    if done.returncode:
        last = done.stdout.strip().splitlines()[:3]
        raise MavenError(f"Maven could not bring {', '.join(artifacts)}: {last}")
    coming.rename(found)
    return found


def _project(artifacts: Sequence[str]) -> str:
    """A project that depends on *artifacts*."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>interop</groupId><artifactId>interop</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
