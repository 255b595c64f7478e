"""The first commands of the page on several machines, with programs that stand in for Ray and rocketray."""

from __future__ import annotations

import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.deployment import path_with
from support.harness.patience import patience
from support.harness.source_tree import ROOT

PAGE = ROOT / "docs/how-to/other-machines.md"
SAYS = """#!/bin/sh
echo "${RAY_AUTH_MODE:-open} ${0##*/} $*" >> "$SAID"
case "$1" in
  get-auth-token) mkdir -p ~/.ray; printf secret | tee ~/.ray/auth_token;;
  disk) echo UUID;;
esac
"""


def blocks(heading: str) -> Iterator[str]:
    """The commands below a heading of the second level."""
    (section,) = re.findall(
        rf"^## {heading}\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    yield from re.findall(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def said_by(block: str, directory: Path) -> list[str]:
    """What the programs are told by the commands of *block*, each behind Ray's mode at that moment."""
    home, said = directory / "home", directory / "said"
    home.mkdir(exist_ok=True)
    path = path_with(directory / "bin", {"ray": SAYS, "rocketray": SAYS})
    environ = {"PATH": path, "HOME": str(home), "SAID": str(said)}
    limit_s = patience(60)
    done = subprocess.run(
        ["sh", "-euc", block],
        env=environ,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=True,
    )
    assert "secret" not in done.stdout
    return said.read_text().splitlines()


def test_the_first_commands_make_a_ray_that_asks_for_a_token(tmp_path: Path) -> None:
    head, *_ = blocks("Start a cluster")
    makes, *started = said_by(head, tmp_path)
    assert makes == "open ray get-auth-token --generate"
    token = tmp_path / "home/.ray/auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert [each.split()[:3] for each in started] == [
        ["token", "rocketray", "disk"],
        ["token", "ray", "start"],
        ["token", "rocketray", "start"],
    ]
    assert {"--head", "--num-cpus=0", "rocketray-disk=UUID"} <= {*started[1].split()}


@pytest.mark.parametrize("heading", ["Start a cluster", "Add a disk"])
def test_no_ray_is_started_without_the_token(tmp_path: Path, heading: str) -> None:
    for number, block in enumerate(blocks(heading)):
        directory = tmp_path / str(number)
        directory.mkdir()
        starts = [each for each in said_by(block, directory) if " start " in each]
        assert starts
        assert {each.split()[0] for each in starts} == {"token"}
