"""The samples in ``deploy``: what they say, and their commands where the paths are those of a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .source_tree import ROOT

DEPLOY = ROOT / "deploy"
MOUNT = "/srv/rocketray"
"""Where every sample mounts the node's disk."""


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The objects of one file for Kubernetes, by their kind."""
    found = [each for each in yaml.safe_load_all((DEPLOY / name).read_text()) if each]
    by_kind = {each["kind"]: each for each in found}
    assert len(by_kind) == len(found)
    return by_kind


def container(template: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The container of that name in a pod's template."""
    found: dict[str, Any]
    (found,) = (each for each in template["spec"]["containers"] if each["name"] == name)
    return found


def at(mount: Path, words: list[str]) -> list[str]:
    """The words of a command, with the disk mounted at *mount*."""
    return [word.replace(MOUNT, str(mount)) for word in words]


def environ_of(described: Mapping[str, Any], mount: Path) -> dict[str, str]:
    """The variables of a container, with the disk mounted at *mount*."""
    values = [each["value"].replace(MOUNT, str(mount)) for each in described.get("env", ())]
    return dict(zip([each["name"] for each in described.get("env", ())], values, strict=True))


def path_with(directory: Path, programs: Mapping[str, Path | str]) -> str:
    """A PATH that begins with a new directory of *programs*: links, or the text of scripts.

    Then come the commands under test, then those of the system.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        if isinstance(program, Path):
            (directory / name).symlink_to(program)
        else:
            (directory / name).write_text(program)
            (directory / name).chmod(0o755)
    return os.pathsep.join(
        (str(directory), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
