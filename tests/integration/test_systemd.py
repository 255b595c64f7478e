"""The services in ``deploy`` run under a real systemd, as docs/how-to/deploy.md installs them."""

from __future__ import annotations

import hashlib
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from support.harness.deployment import DEPLOY, MOUNT
from support.harness.patience import wait_until
from support.nodes.booted_machine import BootedMachine, booted_machine

from rocketray import kernels

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.proves(
        "durability",
        "Under systemd, a node and its Ray are started again, stop with all their processes, "
        "and do not start without the disk",
    ),
]
_USER = "rocketray"
_BIN = "/opt/rocketray/bin"
_ADDRESS = "10.0.0.1"
_READY_S = 120.0
_TOKEN = "/etc/rocketray.token"
_RAY = (f"RAY_ADDRESS={_ADDRESS}:6379", "RAY_AUTH_MODE=token", f"RAY_AUTH_TOKEN_PATH={_TOKEN}")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[BootedMachine]:
    with booted_machine(tmp_path) as booted:
        install(booted)
        yield booted


def install(machine: BootedMachine) -> None:
    """As the page says; the environment is the one of these tests, with its kernels compiled."""
    python = Path(sys.executable).resolve()
    closed = [str(each) for each in (*python.parents, *Path(sys.prefix).parents)]
    folder = Path(kernels.__file__).parent
    cache = Path(
        "/var/cache/rocketray", f"kernels_{hashlib.sha1(str(folder).encode()).hexdigest()}"
    )
    machine.run("chmod", "a+x", *closed)
    machine.run("ln", "-s", sys.prefix, "/opt/rocketray")
    machine.run("mkdir", "-p", MOUNT, str(cache))
    machine.run("useradd", "--system", "--home-dir", MOUNT, _USER)
    machine.run(
        "sh", "-c", f"cp {folder}/__pycache__/*.nb? {cache}; chown -R {_USER}: {cache.parent}"
    )
    machine.run("sh", "-c", f"echo 'disk {MOUNT} tmpfs mode=755 0 0' > /etc/fstab")
    machine.run("systemctl", "daemon-reload")
    machine.run("mount", MOUNT)
    machine.run("chown", f"{_USER}:", MOUNT)
    for each in ("ray.service", "rocketray.service"):
        machine.run("cp", str(DEPLOY / each), "/etc/systemd/system")


def rocketray(machine: BootedMachine, *words: str, environ: tuple[str, ...] = ()) -> str:
    environ = (f"ROCKETRAY_DATA={MOUNT}/data", f"HOME={MOUNT}", *environ)
    return machine.run(f"{_BIN}/rocketray", *words, user=_USER, environ=environ)


def bodies(machine: BootedMachine, *environ: str) -> list[str]:
    said = rocketray(machine, "query", "Trade", "--from", "0", "--json", environ=environ)
    return [b64decode(orjson.loads(line)["body"]).decode() for line in said.splitlines()]


def await_ready(machine: BootedMachine, count: int) -> None:
    wait_until(
        lambda: machine.journal().count("ready: pid") >= count, machine.journal, within_s=_READY_S
    )


def kill(machine: BootedMachine, unit: str) -> None:
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=SIGKILL", unit)


def test_a_node_is_started_again_and_stops_with_all_its_processes(machine: BootedMachine) -> None:
    machine.run("systemctl", "enable", "--now", "rocketray")
    await_ready(machine, 1)
    rocketray(machine, "topics", "create", "Trade", "--queues", "1")
    rocketray(machine, "send", "Trade", "before", "--ack", "disk")
    kill(machine, "rocketray")
    await_ready(machine, 2)
    rocketray(machine, "send", "Trade", "after", "--ack", "disk")
    assert bodies(machine) == ["before", "after"]
    machine.run("pkill", "--signal=KILL", "--exact", "raylet")
    await_ready(machine, 3)
    assert f"the node on {MOUNT}/data ends: Ray is lost" in machine.journal()
    assert bodies(machine) == ["before", "after"]
    machine.run("systemctl", "stop", "rocketray")
    assert machine.state("rocketray") == "inactive"
    assert machine.processes_of(_USER) == []
    machine.run("umount", MOUNT)
    machine.run("sh", "-c", ": > /etc/fstab; systemctl daemon-reload; ! systemctl start rocketray")
    assert machine.state("rocketray") == "inactive"
    assert machine.run("ls", MOUNT) == ""  # no log was begun below the disk


def test_a_node_on_a_shared_ray_ends_before_it_and_returns_with_it(machine: BootedMachine) -> None:
    machine.run("ip", "link", "set", "lo", "up")
    machine.run("ip", "address", "add", f"{_ADDRESS}/24", "dev", "lo")
    start = f"--head --node-ip-address={_ADDRESS} --port=6379 --num-cpus=0"
    machine.run(
        "sh", "-c", f"printf '%s\\n' 'RAY_START={start}' {' '.join(_RAY)} > /etc/rocketray.env"
    )
    machine.run("sh", "-c", f"head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > {_TOKEN}")
    machine.run("chown", _USER, _TOKEN)
    machine.run("chmod", "600", _TOKEN)
    machine.run("systemctl", "enable", "--now", "ray", "rocketray")
    await_ready(machine, 1)
    rocketray(machine, "topics", "create", "Trade", "--queues", "1", environ=_RAY)
    rocketray(machine, "send", "Trade", "before", "--ack", "disk", environ=_RAY)
    kill(machine, "ray")
    await_ready(machine, 2)
    rocketray(machine, "send", "Trade", "after", "--ack", "disk", environ=_RAY)
    assert bodies(machine, *_RAY) == ["before", "after"]
    machine.run("systemctl", "stop", "ray")
    assert [machine.state(each) for each in ("ray", "rocketray")] == ["inactive", "inactive"]
    assert machine.processes_of(_USER) == []
    assert "Failed to mark the local node as draining" not in machine.journal()
