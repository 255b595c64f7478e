"""The faust command line on an app of ours, as far as it needs no node."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faust.cli.base import AppCommand
from support.harness.faust_commands import run_faust

from rocketray.topology.app.app import App

SHOP = """
import faust
import rocketray as rr

app = rr.App("shop", version=3, datadir="shop-data", topic_partitions=1)

class Order(faust.Record, namespace="shop.Order"):
    \"\"\"What somebody wants.\"\"\"
    number: int

counts = app.Table("counts", default=int, help="How many.")

@app.agent(app.topic("Orders", value_type=Order))
async def note(stream):
    \"\"\"Note orders.\"\"\"
    async for order in stream:
        counts[order.number] += 1

@app.command()
async def greet(self):
    self.say("hello from the shop")
"""


COMMANDS = ("model shop.Order", "greet", "clean-versions", "livecheck", "completion")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an app, in which a user is."""
    directory = tmp_path_factory.mktemp("shop")
    (directory / "command_shop.py").write_text(SHOP)
    for version in (1, 2, 3):
        (directory / "shop-data" / f"v{version}" / "tables").mkdir(parents=True)
    return directory


@pytest.fixture(scope="module")
def said(shop: Path) -> dict[str, tuple[int, str]]:
    """The exit code and output of each command."""
    commands = [["-A", "command_shop", *command.split()] for command in COMMANDS]
    return dict(zip(COMMANDS, run_faust(shop, commands), strict=True))


def completion_of_stock_faust(directory: Path) -> tuple[int, str]:
    """The exit code and output in a process that knows nothing of rocketray."""
    (directory / "stock_shop.py").write_text("import faust\napp = faust.App('stock')\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("faust"), "-A", "stock_shop", "completion"],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_commands_of_an_app_are_found() -> None:
    app = App("app")

    @app.command()  # type: ignore[untyped-decorator]  # Faust's
    async def greet(self: Any) -> None:
        self.say("hi")

    assert issubclass(greet, AppCommand)
    assert greet.__name__ == "greet"


@pytest.mark.proves("faust", "`@app.command`: works")
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("model shop.Order", ["shop.Order", "number", "int"]),
        ("greet", ["hello from the shop"]),
    ],
)
def test_what_an_app_has_is_shown(
    said: dict[str, tuple[int, str]], command: str, shown: list[str]
) -> None:
    code, text = said[command]
    assert code == 0, text
    assert all(each in text for each in shown), text


@pytest.mark.proves("faust", "`faust -A app clean-versions`: works")
def test_data_of_earlier_versions_is_removed(shop: Path, said: dict[str, tuple[int, str]]) -> None:
    code, text = said["clean-versions"]
    assert (code, text.count("Removing old version directory")) == (0, 2), text
    assert [path.name for path in sorted((shop / "shop-data").iterdir())] == ["v3"]


@pytest.mark.proves("faust", "`faust -A app livecheck`: refused")
def test_an_app_is_not_checked_live(said: dict[str, tuple[int, str]]) -> None:
    code, text = said["livecheck"]
    assert code != 0
    assert "not associated with LiveCheck" in text


@pytest.mark.proves("faust", "`faust -A app completion`: works")
def test_completion_asks_for_the_package_that_it_needs_as_with_stock_faust(
    shop: Path, said: dict[str, tuple[int, str]]
) -> None:
    if importlib.util.find_spec("click_completion"):
        pytest.skip("click_completion is installed, so both complete")
    code, text = said["completion"]
    stock_code, stock_text = completion_of_stock_faust(shop)
    assert code == stock_code != 0
    assert "pip install click_completion" in text
    assert text.splitlines()[-3:] == stock_text.splitlines()[-3:]
