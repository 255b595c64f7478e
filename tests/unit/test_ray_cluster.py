"""ray_cluster.yaml is one that this Ray takes, and its commands are ours."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from click.testing import CliRunner
from ray.autoscaler._private.commands import _bootstrap_config
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start as ray_start
from support.harness.deployment import DEPLOY, path_with
from support.harness.patience import patience
from support.harness.source_tree import ROOT

from rocketray.runtime.files.paths import identity_file

COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)

KINDS = ("head_start_ray_commands", "worker_start_ray_commands")
DISK = "/srv/rocketray"

# What keeps a node running: it takes a moment to save what the node has.
HEAD = """
import fcntl, os, pathlib, signal, sys, time
data = pathlib.Path(sys.argv[1])
data.mkdir()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with (data / "machine.lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(os.getpid(), file=lock, flush=True)
    print("runs", flush=True)
    signal.sigwait({signal.SIGTERM})
    time.sleep(0.3)
    (data / "saved").touch()
"""
# A node and its Ray, as machine.sh sees them.
RAY = "#!/bin/sh\nexec 8> ~/ray_process_exit.log; exec sleep 60\n"
NODE = """#!/bin/sh
case $1 in
  disk) mkdir -p $3; echo 0b2e9d0e-9a35-4d1f-8d3f-6c7f0f1f9a11;;
  start) echo starting "$@"; sleep 0.3; echo "ready: pid $$"; exec sleep 60;;
esac
"""


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())
    return loaded


def commands_of(config: dict[str, Any]) -> list[str]:
    return [line for name in COMMANDS for line in config.get(name, [])]


def schema() -> dict[str, Any]:
    path = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_rays_schema_takes_it_as_it_stands(config: dict[str, Any]) -> None:
    jsonschema.validate(config, schema())


def test_rays_schema_would_refuse_a_wrong_key(config: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config | {"head_start_commands": []}, schema())


def test_ray_up_takes_it(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of ``ray up`` up to the first machine: defaults, validation, the provider's own."""
    monkeypatch.chdir(ROOT)  # file_mounts are relative to where ray up runs
    validate_config(prepare_config(config))
    ready = _bootstrap_config(config, no_config_cache=True)
    assert ready["max_workers"] == len(ready["provider"]["worker_ips"])
    (workers,) = ready["available_node_types"].values()
    assert workers["min_workers"] == ready["max_workers"]  # an idle one still has its disk
    for commands in KINDS:
        assert ready[commands] == config[commands]


def test_every_ray_it_starts_asks_for_the_token_and_sends_no_statistics(
    config: dict[str, Any],
) -> None:
    starting = [line for line in commands_of(config) if "ray start" in line]
    assert len(starting) == 2
    settings = "RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token "
    assert all(settings in line for line in starting)
    assert "~/.ray/auth_token" in config["file_mounts"]
    for setting in ("worker_niceness", "memory_monitor_refresh_ms", "worker_oom_score_adjustment"):
        assert all(f"RAY_{setting}=0 " in line for line in starting)  # raylets start the shards


def test_ray_start_knows_the_options(config: dict[str, Any]) -> None:
    known = CliRunner().invoke(ray_start, ["--help"]).output
    for line in commands_of(config):
        _, starts, options = line.partition("ray start ")
        if starts:
            asked = [word.partition("=")[0] for word in shlex.split(options) if word[:2] == "--"]
            assert asked
            assert [name for name in asked if name not in known] == []


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """As ``ray up`` runs it on the head, where *home* is the user's and has the disk."""
    environ = {**os.environ, "HOME": str(home)}
    return subprocess.run(
        ["bash", "-c", f"({command.replace(DISK, str(home))})"],
        env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip


def test_without_its_disk_no_node_begins_an_empty_log(
    config: dict[str, Any], tmp_path: Path
) -> None:
    (mounted,) = [line for line in config["setup_commands"] if line.startswith("mountpoint")]
    done = run(mounted, tmp_path)
    assert done.returncode == 1
    assert done.stdout == f"mount the node's disk at {tmp_path}\n"
    assert run(mounted, Path("/proc")).returncode == 0


def test_ray_down_finds_ray_and_stops_the_node_before_it(
    config: dict[str, Any], tmp_path: Path
) -> None:
    install(tmp_path, NODE, ray='#!/bin/sh\necho "$@"; ls ~/data/saved\n')
    (said,) = [line for line in config["setup_commands"] if ".bashrc" in line]
    for _ in range(2):
        assert run(said, tmp_path).returncode == 0
    assert len((tmp_path / ".bashrc").read_text().splitlines()) == 2
    with runs(tmp_path / "data"):
        assert not run("source ~/.bashrc; (ray status)", tmp_path).stdout.endswith("saved\n")
        down = run("source ~/.bashrc; (ray stop)", tmp_path)
    assert down.stdout == f"stop\n{tmp_path}/data/saved\n"


def test_the_autoscaler_is_the_one_that_starts_workers_of_a_local_provider(
    config: dict[str, Any],
) -> None:
    """Version 2 never starts them (Ray 2.60), and ``ray up`` asks for it in each command."""
    (start,) = [line for line in config[KINDS[0]] if "machine.sh /srv/rocketray/data ray" in line]
    assert config["provider"]["type"] == "local"
    assert " RAY_enable_autoscaler_v2=0 " in start.partition("nohup")[0]


@contextmanager
def runs(data: Path) -> Iterator[None]:
    """What keeps a node running, in the block and until it is stopped."""
    with subprocess.Popen(
        [sys.executable, "-c", HEAD, str(data)], stdout=subprocess.PIPE, text=True
    ) as head:
        assert head.stdout
        assert head.stdout.readline() == "runs\n"
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_what_runs_is_stopped_and_awaited(
    config: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    install(tmp_path, NODE)
    stop = config[kind][0]
    assert run(stop, tmp_path).returncode == 0  # there never was one
    data = tmp_path / "data"
    with runs(data):
        done = run(stop, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert (data / "saved").exists()
    assert run(stop, tmp_path).returncode == 0  # it has ended
    assert run(stop, tmp_path).stderr == ""


def install(home: Path, node: str, ray: str = RAY) -> None:
    """As ``ray up`` does, with programs that stand in for Ray and the node."""
    path_with(home / "rocketray/.venv/bin", {"ray": ray, "rocketray": node})
    (home / "rocketray/deploy").symlink_to(DEPLOY)


def run_last(commands: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands that start Ray and the node, and await it."""
    start, await_ready = commands[-2:]
    assert run(start, home).returncode == 0
    return run(await_ready, home)


@pytest.mark.parametrize("kind", KINDS)
def test_ray_up_fails_with_what_a_node_says_that_cannot_start(
    config: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    install(tmp_path, f'#!/bin/sh\nexec "{sys.executable}" -m rocketray "$@"\n')
    (tmp_path / "data").mkdir()
    identity_file(tmp_path / "data").write_text("{")
    done = run_last(config[kind], tmp_path)
    assert done.returncode == 1
    assert f"rocketray: {identity_file(tmp_path / 'data')}: damaged" in done.stdout


@pytest.mark.parametrize("has_old_log", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ray_up_goes_on_when_the_node_is_ready(
    config: dict[str, Any], tmp_path: Path, has_old_log: bool, kind: str
) -> None:
    install(tmp_path, NODE)
    if has_old_log:
        (tmp_path / "rocketray.log").write_text("ready: pid 1\n")
    try:
        done = run_last(config[kind], tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        log = (tmp_path / "rocketray.log").read_text()
        joins = " --cluster default --join" if kind == KINDS[1] else ""
        data = tmp_path / "data"
        said = re.escape(f"starting start --ray-address auto --data {data}{joins}")
        assert re.fullmatch(rf"{said}\nready: pid \d+\n", log)
        os.kill(int(log.split()[-1]), 0)  # it goes on
    finally:
        done = run(config[kind][0], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.split()[-1]), 0)


def test_what_it_installs_is_the_frozen_project(config: dict[str, Any]) -> None:
    assert config["file_mounts"]["~/rocketray"] == "."
    installs = [line for line in config["setup_commands"] if "pip install" in line]
    assert installs
    assert all("--constraint requirements.lock" in line for line in installs)
