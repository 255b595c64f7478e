"""Finding an app by its path, and what a user is told when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.errors import ConfigError
from rocketray.topology.hosting.app_path import load_app

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
        ("deploy_raises:app", r"ValueError: no such setting \(.*deploy_raises.py, line 2\)"),
        ("deploy_needs:app", r"No module named 'nowhere_to_be_found' \(.*deploy_needs.py, line 1"),
        ("deploy_typo:app", r"cannot be imported: .*\(deploy_typo.py, line 1\)"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_what_to_do(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_app(path)
