"""What Spark runs as Python is compared with the ordinary Python, by a module that tells all of it."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from support.harness.patience import patience, wait_until
from support.harness.process_tree import children_of

from rocketray.queries.spark import warm_python
from rocketray.queries.spark.warm_client import READY, VARIABLE
from rocketray.queries.spark.warm_python import WarmPython, make_python, start_warm
from rocketray.queries.spark.warm_server import (
    _SPARKS,
    Request,
    can_fork,
    parse_request,
    path_changes,
)

pytestmark = pytest.mark.proves(
    "spark",
    "A forked Python process is what the ordinary one would be; what cannot be forked is "
    "run, and a JVM or session of the user's keeps its Python",
)

TELLS = """
import json, os, sys
is_warm = "pyspark" in sys.modules
import time
seen = {
    "argv": sys.argv[1:], "name": __name__, "file": os.path.basename(sys.argv[0]),
    "directory": os.getcwd(), "environ": dict(os.environ) | {"PWD": "the shell's"}, "input": sys.stdin.read(),
    "path": [sys.path[0], *(each for each in sys.path if "marker" in each)], "zone": time.tzname,
    "run": [each for each in sys.modules if each in {run}], "main": sys.modules["__main__"].__name__,
    "descriptors": [n for n in os.listdir("/proc/self/fd") if int(n) < 3],
}
print(json.dumps([is_warm, seen]))
print("and this is an error", file=sys.stderr)
"""
TELLS = TELLS.replace("{run}", repr({*_SPARKS, "rocketray.queries.spark.daemon"}))
WAITS = (
    "import sys, time\nprint('begun', flush=True)\nsys.stdin.read()\nprint('ends', flush=True)\n"
)


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmPython]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/" + "deep/" * 30)  # no name of a socket is as long
        found = start_warm({**os.environ, "PYTHONHASHSEED": "7"})  # spark-submit sets another one
    with socket.socket(socket.AF_UNIX) as link:  # else a busy machine might not be warm in time
        link.connect(str(found.socket))
        assert link.recv(1) == READY
    yield found
    os.close(found.life)
    assert os.waitpid(found.process_id, 0) == (found.process_id, 0)
    assert not found.socket.parent.exists()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_python(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def environ(tmp_path: Path, warm: WarmPython) -> dict[str, str]:
    """The environment of a process that Spark starts, with modules of this test."""
    modules = tmp_path / "marker modules"
    modules.mkdir()
    (modules / "tells.py").write_text(TELLS)
    (modules / "waits.py").write_text(WAITS)
    path = os.pathsep.join(
        [str(tmp_path / "marker"), str(modules), os.environ.get("PYTHONPATH", "")]
    )
    spark = {"PYTHONHASHSEED": "0", VARIABLE: str(warm.socket)}
    return {**os.environ, **spark, "PYTHONPATH": path, "TZ": "Asia/Tokyo"}


def run(program: Path | str, environ: dict[str, str], *arguments: str, **more: Any) -> list[Any]:
    command = [str(program), *arguments]
    done = subprocess.run(
        command,
        env=environ,
        input="what it reads",
        text=True,
        capture_output=True,
        check=True,
        **more,
    )
    assert "and this is an error" in done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_a_forked_process_is_what_the_ordinary_one_would_be(
    environ: dict[str, str], python: Path, tmp_path: Path, rng: random.Random
) -> None:
    texts = ["", "a b", "'\"", "ä\n", "x" * 70_000, str(rng.random())]
    arguments = rng.sample(texts, 4)
    environ |= {"SPARK_OF_THE_TEST": rng.choice(texts), "PYTHON_UNIX_DOMAIN_ENABLED": "true"}

    warm = run(python, environ, "-m", "tells", *arguments, cwd=tmp_path)
    plain = run(sys.executable, environ, "-m", "tells", *arguments, cwd=tmp_path)

    assert (warm[0], plain[0]) == (True, False)
    assert warm[1] == plain[1]
    assert warm[1]["argv"] == arguments
    assert warm[1]["input"] == "what it reads"


def test_what_cannot_be_forked_is_run(
    environ: dict[str, str], python: Path, tmp_path: Path
) -> None:
    def is_warm(*arguments: str, **changes: str) -> bool:
        return bool(run(python, environ | changes, *(arguments or ("-m", "tells")))[0])

    assert is_warm()
    assert not is_warm(str(tmp_path / "marker modules" / "tells.py"))
    assert not is_warm(PYTHONHASHSEED="77")
    assert not is_warm(OMP_NUM_THREADS="3")
    assert not is_warm(**{VARIABLE: ""})
    assert not is_warm(**{VARIABLE: str(tmp_path / "no socket")})


def begin(python: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen([python, "-m", "waits"], env=environ, stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_the_program_ends_with_the_process(environ: dict[str, str], python: Path) -> None:
    with begin(python, environ) as process:
        assert process.communicate(timeout=patience(60))[0] == "ends\n"


def test_the_signal_that_ends_the_program_ends_the_process(
    environ: dict[str, str], python: Path, warm: WarmPython
) -> None:
    with begin(python, environ) as process:
        (child,) = children(warm)
        assert Path(f"/proc/{child}/comm").read_text() == "spark:waits\n"
        process.send_signal(signal.SIGTERM)
        process.wait(
            timeout=patience(60)
        )  # its standard input is still open, so nothing else ends it
        assert process.communicate()[0] == ""
    wait_until(lambda: not children(warm))


def test_a_signal_that_comes_while_the_process_is_forked_ends_it(
    environ: dict[str, str], python: Path, warm: WarmPython
) -> None:
    with subprocess.Popen([python, "-m", "waits"], env=environ, stdin=-1, stdout=-1) as process:
        while not children(warm):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not children(warm))


def errors_of_a_worker_whose_socket_is_reset(python: Path | str, environ: dict[str, str]) -> str:
    command = [str(python), "-m", "pyspark.daemon", "pyspark.worker"]
    with subprocess.Popen(command, env=environ, stdin=-1, stdout=-1, stderr=-1) as daemon:
        assert daemon.stdout is not None
        port = int.from_bytes(daemon.stdout.read(4), "big")
        with socket.create_connection(("127.0.0.1", port)) as link:
            worker = int.from_bytes(link.recv(4), "big")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: not Path(f"/proc/{worker}").exists())  # or the daemon would end it first
        _, errors = daemon.communicate(timeout=patience(60))
    return errors.decode()


def test_a_worker_of_a_planner_too_ends_quietly_with_its_socket(
    environ: dict[str, str], python: Path
) -> None:
    """Spark has planners served by its own daemon, whatever the session names for tasks."""
    assert "ConnectionResetError" in errors_of_a_worker_whose_socket_is_reset(
        sys.executable, environ
    )
    assert errors_of_a_worker_whose_socket_is_reset(python, environ) == ""


def children(warm: WarmPython) -> list[int]:
    return [*children_of(warm.process_id)]


def test_it_can_be_forked_safely(environ: dict[str, str], python: Path, warm: WarmPython) -> None:
    """One thread beside Arrow's allocator, which is made for a fork; and no Ray, which has many."""
    run(python, environ, "-m", "tells")  # it answers, so it has loaded all

    process = Path(f"/proc/{warm.process_id}")
    threads = [(task / "comm").read_text().strip() for task in (process / "task").iterdir()]
    assert len([name for name in threads if name != "jemalloc_bg_thd"]) == 1, threads
    maps = (process / "maps").read_text()
    assert "libarrow" in maps
    assert "_raylet" not in maps


def test_a_socket_that_says_nothing_useful_harms_nobody(
    environ: dict[str, str], python: Path, warm: WarmPython, rng: random.Random
) -> None:
    for content in (b"", b"1\0", rng.randbytes(100), b"1\0tells\0/\0"):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(60)
            link.connect(str(warm.socket))
            assert link.recv(1) == READY
            link.sendall(content)
            link.shutdown(socket.SHUT_WR)
            assert link.recv(10) == b""
    assert run(python, environ, "-m", "tells")[0]


def test_a_request_is_read_whole_or_not_at_all() -> None:
    whole = b"2\0pyspark.daemon\0an argument\0/work\0A=1\0B=x=y\0C=\0"
    expected = Request(["pyspark.daemon", "an argument"], "/work", {"A": "1", "B": "x=y", "C": ""})

    assert parse_request(whole) == expected
    for content in (b"", b"\0", b"0\0/\0", b"x\0m\0/\0", b"3\0m\0/\0", b"1\0m\0", whole[:-1]):
        assert parse_request(content) is None, content


def test_only_what_an_interpreter_reads_at_its_start_has_to_agree() -> None:
    def can(name: str, asked: str, own: str) -> bool:
        return can_fork(Request(["m"], "/", {name: asked}), {name: own})

    for name in ("PYTHONHASHSEED", "PYTHONWARNINGS", "LD_PRELOAD", "LANG", "NUMBA_CACHE_DIR"):
        assert can(name, "1", "1")
        assert not can(name, "1", "2"), name
        assert not can_fork(Request(["m"], "/", {name: "1"}), {}), name
        assert can_fork(Request(["m"], "/", {}), {name: "1"}), name
    for name in ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHON_WORKER_FACTORY_SECRET", "SPARK_X"):
        assert can(name, "1", "2"), name


def test_the_module_path_gains_what_it_lacks_but_sparks_archives() -> None:
    archive = str(Path(pyspark.__file__).parent / "python/lib/pyspark.zip")
    entries = os.pathsep.join([archive, "/mine", "", "/known", "/other"])

    assert path_changes(entries, ["", "/known"]) == ["/mine", "/other"]
    assert path_changes("", []) == []


@pytest.mark.parametrize("gateway", ["in this process", "of spark-submit"])
def test_a_jvm_that_runs_already_keeps_the_ordinary_python(
    gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = object() if gateway == "in this process" else None
    monkeypatch.setattr(warm_python, "SparkContext", SimpleNamespace(_gateway=started))
    monkeypatch.setattr(warm_python, "start_warm", None)
    if started is None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    assert warm_python._pythons.__wrapped__() == (sys.executable, None)


def test_it_says_so_if_it_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rocketray").write_text("a file where the cache would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(warm_python, "SparkContext", SimpleNamespace(_gateway=None))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    with caplog.at_level(logging.WARNING):
        assert warm_python._pythons.__wrapped__() == (sys.executable, None)
    assert "half a second longer to start" in caplog.text
