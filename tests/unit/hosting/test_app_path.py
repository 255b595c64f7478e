"""Finding an app by its path, and what a user is told when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.errors import ConfigError
from rocketray.hosting.app_path import AppSource, load_app, source_of

MODULES = {
    "deploy_good": "import rocketray as rr\nshop = rr.App('shop')\n",
    "deploy_stock": "import faust\napp = faust.App('stock')\n",
    "deploy_empty": "app = None\n",
    "deploy_raises": "x = 1\nraise ValueError('no such setting')\n",
    "deploy_needs": "import nowhere_to_be_found\n",
    "deploy_typo": "def f(:\n",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)


def test_an_app_is_found() -> None:
    assert load_app("deploy_good:shop").conf.id == "shop"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("deploy_good", "named as module:app, for example trade:app"),
        ("deploy_good:app", "has no rocketray.App named 'app'; it has deploy_good:shop$"),
        ("deploy_empty:app", "it has none at all"),
        ("deploy_stock:app", "runs with: faust -A deploy_stock worker"),
        ("deploy_missing:app", "No module named 'deploy_missing'; name a module that can be"),
        ("deploy_missing.x:app", "No module named 'deploy_missing'; name a module that can be"),
        ("deploy_raises:app", r"ValueError: no such setting \(.*deploy_raises.py:2\)"),
        ("deploy_needs:app", r"No module named 'nowhere_to_be_found' \(.*deploy_needs.py:1"),
        ("deploy_needs:app", r"py:1\); install what has it into .*, or add its directory to"),
        ("deploy_typo:app", r"cannot be imported: .*\(deploy_typo.py, line 1\)"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_what_to_do(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_app(path)


def test_the_source_of_an_app_is_where_its_package_is_imported_from(tmp_path: Path) -> None:
    package = tmp_path / "deploy_package" / "inner"
    package.mkdir(parents=True)
    alone = tmp_path / "deploy_alone.py"
    for file in (
        alone,
        package.parent / "__init__.py",
        package / "shop.py",
        package / "__init__.py",
    ):
        file.write_text(MODULES["deploy_good"])
    for path, file in (
        ("deploy_alone:shop", alone),
        ("deploy_package:shop", package.parent / "__init__.py"),
        ("deploy_package.inner:shop", package / "__init__.py"),
        ("deploy_package.inner.shop:shop", package / "shop.py"),
    ):
        load_app(path)
        assert source_of(path) == AppSource(file, tmp_path)


def test_an_installed_app_has_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "deploy_installed.py").write_text(MODULES["deploy_good"])
    monkeypatch.syspath_prepend(packages)
    for path in ("deploy_installed:shop", "rocketray_demo.app:app"):
        load_app(path)
        assert source_of(path) is None
