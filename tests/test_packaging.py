"""What is tested is what is shipped: the installed package, whole, and of one version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest
from support.harness.source_tree import PACKAGES, ROOT, package_files

import rocketray

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
DISTRIBUTION = metadata.distribution("rocketray")


def is_editable() -> bool:
    origin = json.loads(DISTRIBUTION.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


installed = pytest.mark.skipif(
    is_editable() and os.environ.get("CI") != "true",
    reason="an editable install has no files of its own; make test installs the wheel",
)


def shipped_files() -> set[str]:
    return {file.as_posix() for file in DISTRIBUTION.files or ()}


@installed
def test_the_tests_run_against_the_installed_package() -> None:
    for package in PACKAGES:
        path = Path(str(import_module(package).__file__)).resolve()
        assert "site-packages" in path.parts
        assert not path.is_relative_to(ROOT / package)


@installed
def test_a_child_process_sees_the_installed_package() -> None:
    command = [sys.executable, "-c", "import rocketray; print(rocketray.__file__)"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert Path(printed.strip()) == Path(rocketray.__file__)


@installed
def test_the_wheel_has_every_module_and_the_type_marker() -> None:
    sources = {file.where for file in package_files()}
    data = {"rocketray/py.typed", "pyspark_rocketray/__init__.py"}
    assert (sources | data) - shipped_files() == set()


@installed
def test_the_wheel_has_nothing_but_the_packages() -> None:
    top = {name.split("/")[0] for name in shipped_files() if not name.startswith("..")}
    assert top == {*PACKAGES, DISTRIBUTION_INFO}


DISTRIBUTION_INFO = f"rocketray-{PROJECT['version']}.dist-info"


def test_every_entry_point_loads() -> None:
    points = list(DISTRIBUTION.entry_points)
    assert {"rocketray"} <= {point.name for point in points if point.group == "console_scripts"}
    for point in points:
        assert callable(point.load()), point


def test_stock_faust_finds_the_transport() -> None:
    [(name, path)] = PROJECT["entry-points"]["faust.transports"].items()
    transport = metadata.EntryPoint(name, path, "faust.transports").load()
    assert (name, transport.driver_version) == ("rocketray", "rocketray")


def test_one_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert rocketray.__version__ == PROJECT["version"] == DISTRIBUTION.version
    assert PROJECT["version"] in re.findall(r"^## .*?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)


def test_every_dependency_is_frozen() -> None:
    text = (ROOT / "requirements.lock").read_text()
    frozen = {canonical(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    extras = PROJECT["optional-dependencies"].values()
    groups = PYPROJECT["dependency-groups"].values()
    asked = [*PROJECT["dependencies"], *(line for some in (*extras, *groups) for line in some)]
    names = {canonical(re.split(r"[^\w.-]", line)[0]) for line in asked}
    assert names - frozen == set()


def test_the_frozen_versions_name_no_machine() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|--index|--find-links| @ |/(home|root|tmp|Users)/", text)


@pytest.mark.parametrize("name", ["hatchling", "pip", "setuptools"])
def test_what_builds_the_package_is_frozen(name: str) -> None:
    assert re.search(rf"^{name}==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
