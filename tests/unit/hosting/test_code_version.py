"""The version of an app's code: the same for the same files, wherever they are."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.hosting.code_version import CodeVersion, code_version

APP = "import helper_of_versions\napp = 1\n"


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], CodeVersion]]:
    """The version of a module and its helper, imported from a directory."""
    names = ("versioned_app", "helper_of_versions")

    def load(directory: Path) -> CodeVersion:
        for name in names:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(directory)
            importlib.import_module("versioned_app")
        return code_version("versioned_app:app", 7)

    yield load
    for name in names:
        sys.modules.pop(name, None)


def write(directory: Path, helper: str = "x = 1\n") -> Path:
    directory.mkdir()
    (directory / "versioned_app.py").write_text(APP)
    (directory / "helper_of_versions.py").write_text(helper)
    (directory / "unused.py").write_text("raise ValueError\n")
    return directory


def test_it_is_of_the_loaded_files_alone(
    tmp_path: Path, version: Callable[[Path], CodeVersion]
) -> None:
    found = version(write(tmp_path / "a"))
    assert found.files == ("helper_of_versions.py", "versioned_app.py")
    assert (found.directory, found.loaded_ms) == (str(tmp_path / "a"), 7)
    (tmp_path / "a" / "unused.py").write_text("changed")
    assert found.now() == found.digest
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = replace(version(tmp_path / "b"), loaded_ms=9)
    assert again.is_same(found)
    assert str(again) == str(found)
    assert not found.is_same(None)


def test_a_change_of_a_helper_is_another_version(
    tmp_path: Path, version: Callable[[Path], CodeVersion]
) -> None:
    found = version(write(tmp_path / "a"))
    (tmp_path / "a" / "helper_of_versions.py").write_text("x = 2\n")
    assert found.now() != found.digest
    assert found.now() == version(tmp_path / "a").digest
    (tmp_path / "a" / "helper_of_versions.py").unlink()
    assert found.now() != found.digest
    assert not version(write(tmp_path / "b", "x = 3\n")).is_same(found)


def test_an_installed_app_has_the_version_of_its_package() -> None:
    import rocketray_demo.app  # noqa: PLC0415, F401  # loaded by its path

    found = code_version("rocketray_demo.app:app", 0)
    assert any(name.endswith("app.py") for name in found.files)
