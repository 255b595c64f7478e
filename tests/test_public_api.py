"""The public surface: what is exported is listed, what is listed is there, and imports stay light."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest
from support.harness.source_tree import package_files

ENGINES = ("ray", "faust", "mode", "pyspark")
MODULES = [file.module for file in package_files() if not file.module.endswith("__main__")]
PACKAGES = [file.module for file in package_files() if file.is_package]
# Importing these must stay cheap: they are used without a node, an app or a Spark session.
LIGHT = ("rocketray", "rocketray.store", "rocketray.filters", "rocketray.cli")


def loaded_by(module: str) -> set[str]:
    """The top-level names that a fresh interpreter has loaded after importing *module*."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def exported(module: ModuleType) -> set[str]:
    """The public names that *module* defines or imports from this project, modules left out."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and str(getattr(value, "__module__", "")).startswith("rocketray")
    }


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_loads_no_engine(module: str) -> None:
    assert loaded_by(module).isdisjoint(ENGINES)


def test_importing_the_package_alone_loads_no_library() -> None:
    """It takes 30 ms; each name of it loads what it needs."""
    slow = {"numpy", "pyarrow", "numba", "orjson", "typer", "asyncio", "logging", "subprocess"}
    assert loaded_by("rocketray").isdisjoint({*ENGINES, *slow})


def test_every_listed_name_is_there() -> None:
    modules = map(import_module, MODULES)
    listed = {module: getattr(module, "__all__", ()) for module in modules}
    assert sum(map(len, listed.values())) > 50
    missing = [
        f"{module.__name__}.{name}"
        for module, names in listed.items()
        for name in names
        if not hasattr(module, name)
    ]
    assert missing == []


def test_a_name_is_looked_up_once() -> None:
    """A loop says ``rr.Message`` for each message: from the second time on, it is an attribute."""
    code = (
        "import rocketray as rr\n"
        "names = [name for name in rr.__all__ if not name.startswith('_')]\n"
        "found = {name: getattr(rr, name) for name in names}\n"
        "rr.__getattr__ = None\n"
        "assert all(getattr(rr, name) is found[name] for name in names)\n"
        "assert vars(rr).keys() >= found.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("Mesage", "Message"), ("ForkedError", "rocketray.errors.ForkedError")],
)
def test_a_name_that_is_not_there_is_told_where_it_may_be(wrong: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"'{wrong}'; did you mean '{meant}'"):
        getattr(import_module("rocketray"), wrong)


def test_every_name_a_package_exports_is_listed() -> None:
    packages = list(map(import_module, PACKAGES))
    assert len(packages) > 50
    not_listed = {
        package.__name__: names
        for package in packages
        if (names := exported(package) - set(getattr(package, "__all__", ())))
    }
    assert not_listed == {}


def test_the_names_that_others_rely_on() -> None:
    for name in (
        "hashing.java_hash_code",
        "hashing.tags_code",
        "hashing.index_key_hash",
        "hashing.crc32",
        "message.encode_properties",
        "message.decode_properties",
        "filters.subscription.parse",
        "filters.bloom.bit_positions",
    ):
        module, _, function = name.rpartition(".")
        assert callable(getattr(import_module(f"rocketray.{module}"), function)), name
