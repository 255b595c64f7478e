from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketray.topology.spark.java_shim import VECTOR_ARGUMENT, cache_directory, make_shim


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A program that prints each of its arguments on a line, in a path with a blank and quotes."""
    program = tmp_path / "a 'java' home" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    program.chmod(0o755)
    return program


def test_only_the_one_argument_is_dropped_and_the_others_stay_as_they_are(
    echo: Path, tmp_path: Path
) -> None:
    home = make_shim(echo, 21, tmp_path / "cache")
    arguments = ["-Xmx1g", VECTOR_ARGUMENT, "two words", "", "$HOME*", "--add-modules=java.sql"]

    output = subprocess.check_output([home / "bin" / "java", *arguments], text=True)

    kept = [argument for argument in arguments if argument != VECTOR_ARGUMENT]
    assert output.splitlines() == [f"<{argument}>" for argument in kept]


def test_each_runtime_and_version_has_a_home_of_its_own(echo: Path, tmp_path: Path) -> None:
    other = tmp_path / "java"
    homes = {make_shim(p, v, tmp_path / "cache") for p in (echo, other) for v in (21, 25)}

    assert len(homes) == 4


def test_a_good_one_is_kept_and_a_damaged_one_is_made_again(echo: Path, tmp_path: Path) -> None:
    script = make_shim(echo, 21, tmp_path / "cache") / "bin" / "java"
    made = script.stat().st_ino
    make_shim(echo, 21, tmp_path / "cache")
    assert script.stat().st_ino == made

    good = script.read_text()
    script.write_text(good[:20])
    make_shim(echo, 21, tmp_path / "cache")
    assert script.read_text() == good

    script.chmod(0o644)
    make_shim(echo, 21, tmp_path / "cache")
    assert script.stat().st_mode & 0o777 == 0o755


def test_many_at_once_leave_one_whole_script(echo: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(lambda _: make_shim(echo, 21, tmp_path / "cache"), range(64)))

    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    assert subprocess.check_output([home / "bin" / "java", "x"], text=True) == "<x>\n"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/rocketray"),
        ({"HOME": "/h"}, "/h/.cache/rocketray"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/rocketray"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/rocketray"),
    ],
)
def test_the_cache_is_where_the_xdg_rules_say(environ: dict[str, str], expected: str) -> None:
    assert cache_directory(environ) == Path(expected)
