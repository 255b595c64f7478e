"""The commands of the samples in ``deploy`` run as they stand, survive their Ray, and lose nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
import yaml
from support.harness.command_server import CommandServer, Done
from support.harness.deployment import DEPLOY, at, container, documents, environ_of, path_with
from support.harness.patience import patience, wait_until
from support.harness.process_tree import children_of
from support.nodes.another_ray import SHORT, planned_ray
from support.nodes.machines_apart import THERE, apart

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.proves(
        "durability",
        "A node under `deploy/machine.sh`, of the first disk or a joined one, or in the "
        "`StatefulSet`, comes back after its Ray failed, with its messages",
    ),
]
_READY_S = 120.0


def await_ready(
    log: Path, count: int, process: subprocess.Popen[bytes], said: str = "ready: pid"
) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return log.read_text().count(said) >= count

    wait_until(is_ready, log.read_text, within_s=_READY_S)


class Commands:
    """Commands for a node, in one process: as long as its Ray lives."""

    def __init__(self, server: CommandServer, data: Path) -> None:
        self._server = server
        self._data = data

    def create(self, queues: int = 1) -> None:
        words = ("topics", "create", "Trade", "--queues", str(queues))
        self._run(*words, "--queues-per-process", "shared")

    def send(self, body: str, queue: int = 0) -> None:
        self._run("send", "Trade", body, "--ack", "disk", "--queue", str(queue))

    def bodies(self) -> list[str]:
        found = self._run("query", "Trade", "--from", "0", "--json").lines()
        return sorted(b64decode(each["body"]).decode() for each in found)

    def _run(self, *words: str) -> Done:
        done = self._server(*words, "--data", self._data)
        assert done.code == 0, done.err
        return done


@contextmanager
def commands(data: Path, environ: Mapping[str, str]) -> Iterator[Commands]:
    with CommandServer(environ) as server:
        yield Commands(server, data)


@pytest.mark.slow
def test_disks_of_kuberay_come_back_with_their_messages_and_their_register(tmp_path: Path) -> None:
    """Two pods on machines of their own: the raylet of one is lost, and then that of the first."""
    disk = container(documents("kuberay.yaml")["StatefulSet"]["spec"]["template"], "disk")
    data, register = tmp_path / "data", tmp_path / "register"
    path = path_with(tmp_path / "bin", {"rocketray-machine": DEPLOY / "machine.sh"})
    pods = [f"rocketray-disk-{number}" for number in range(2)]
    hosts = [THERE, THERE.replace("3", "4")]
    for each in (data, register, *(tmp_path / pod for pod in pods)):
        each.mkdir()
    with tempfile.TemporaryDirectory(prefix="ray-", dir=SHORT) as directory:
        ray = planned_ray(directory)
        # Ray on loopback (tests/conftest.py) lets no second raylet in, unless that one says otherwise.
        environ = {
            **ray.environ,
            "PATH": path,
            "RAY_ADDRESS": ray.address,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
            "REGISTER": f"file://{register}",
        }
        logs = [tmp_path / f"{pod}.log" for pod in pods]
        begun: list[subprocess.Popen[bytes]] = []
        for pod, host, log in zip(pods, hosts, logs, strict=True):
            there = apart(data, tmp_path / pod, Path("/dev/shm"), Path(directory), name=pod)
            command = [*there, *disk["command"], *at(tmp_path, disk["args"])]
            options = f"--address={ray.address} --node-ip-address={host} --temp-dir={directory}"
            command[-1] = command[-1].replace("--address=rocketray-head-svc:6379", options)
            with log.open("w") as output:
                process = subprocess.Popen(
                    command, env=environ | {"POD": pod}, stdout=output, stderr=output
                )
            begun.append(process)
        ready = ("ready: pid", "joined: cluster default")
        try:
            ray.start()  # the pods wait for it
            for process, log, said in zip(begun, logs, ready, strict=True):
                await_ready(log, 1, process, said)
                assert "depend on the raylet" not in log.read_text()  # the label binds the actors
            assert "standby: the coordinator starts here" in logs[1].read_text()
            with CommandServer(environ) as server:
                assert not server(*_OF_CLUSTER, *_CREATE, "--queues", "2").err
                for queue in range(2):
                    send(server, f"before {queue}", queue)
                for number in (1, 0):  # the coordinator is on the first disk
                    os.kill(ray.raylet_at(hosts[number]), signal.SIGKILL)
                    await_ready(logs[number], 2, begun[number], ready[number])
                    assert f"the node on {data} ends: " in logs[number].read_text()
                for queue in range(2):
                    send(server, f"after {queue}", queue)
                found = server(*_OF_CLUSTER, "query", "Trade", "--from", "0", "--json").lines()
            bodies = sorted(b64decode(each["body"]).decode() for each in found)
            assert bodies == ["after 0", "after 1", "before 0", "before 1"]
        finally:
            for process in begun:
                process.kill()
                process.wait()
            ray.stop()


_OF_CLUSTER = ("--cluster", "default")
_CREATE = ("topics", "create", "Trade", "--queues-per-process", "shared")


def send(server: CommandServer, body: str, queue: int) -> None:
    done = server(*_OF_CLUSTER, "send", "Trade", body, "--ack", "disk", "--queue", str(queue))
    assert done.code == 0, done.err


@pytest.mark.parametrize("is_lost", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stateful_set_serves_its_program_and_comes_back_with_its_messages(
    tmp_path: Path, *, is_lost: bool
) -> None:
    """In the long form its Ray is lost; test_ray_lost.py has that for every ``rocketray start``."""
    template = documents("statefulset.yaml")["StatefulSet"]["spec"]["template"]
    node, program = (container(template, name) for name in ("node", "program"))
    data, log = tmp_path / "data", tmp_path / "log"
    environ = {**os.environ, "PATH": path_with(tmp_path / "bin", {})}
    environ.pop("RAY_ADDRESS", None)
    is_ready = at(tmp_path, node["readinessProbe"]["exec"]["command"])

    def start(count: int) -> subprocess.Popen[bytes]:
        with log.open("a") as output:
            process = subprocess.Popen(
                at(tmp_path, node["command"]),
                env=environ | environ_of(node, tmp_path), stdout=output, stderr=output,
            )  # fmt: skip
        await_ready(log, count, process)
        assert subprocess.run(is_ready, env=environ, check=False).returncode == 0
        return process

    process = start(1)
    try:
        with commands(data, environ) as run:
            run.create()
            run.send("before")
            if not is_lost:
                run.send("after")
                assert run.bodies() == ["after", "before"]
        if is_lost:
            (gcs,) = servers(process.pid)
            os.kill(gcs, signal.SIGKILL)
            assert process.wait(patience(30)) == 1  # so Kubernetes starts its container again
            assert subprocess.run(is_ready, env=environ, check=False).returncode == 1
            process = start(2)
            with commands(data, environ) as run:
                run.send("after")
                assert run.bodies() == ["after", "before"]
        consumer = subprocess.Popen(
            at(tmp_path, program["command"]),
            env=environ | environ_of(program, tmp_path), stdout=subprocess.PIPE,
        )  # fmt: skip
        assert consumer.stdout
        with consumer.stdout as lines:
            got = [lines.readline().decode() for _ in range(2)]
            consumer.terminate()
            consumer.wait(patience(60))
        assert ["before" in got[0], "after" in got[1]] == [True, True], got
    finally:
        process.terminate()
        assert process.wait(patience(60)) == 0
    assert subprocess.run(is_ready, env=environ, check=False).returncode == 1


@pytest.mark.proves(
    "durability",
    "Node, program and console of `deploy/compose.yaml` answer with its commands, also its health "
    "check, and end cleanly at SIGTERM",
)
@pytest.mark.slow
def test_what_the_containers_run_answers_and_ends_at_sigterm(tmp_path: Path) -> None:
    """The commands of compose.yaml as processes: the console's port is any, on all addresses."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    data = tmp_path / "data"
    named = dict(
        zip(
            services["node"]["environment"],
            at(tmp_path, [*services["node"]["environment"].values()]),
            strict=True,
        )
    )
    environ = {**os.environ, "PATH": path_with(tmp_path / "bin", {}), **named}
    environ.pop("RAY_ADDRESS", None)
    logs = {name: tmp_path / f"{name}.log" for name in ("node", "program", "console")}
    is_healthy = at(tmp_path, services["node"]["healthcheck"]["test"][1:])

    def health() -> int:
        return subprocess.run(is_healthy, env=environ, check=False).returncode

    def start(name: str, said: str, *options: str) -> subprocess.Popen[bytes]:
        command = [*at(tmp_path, services[name]["command"]), *options]
        with logs[name].open("w") as output:
            process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        await_ready(logs[name], 1, process, said)
        return process

    assert health() == 1
    begun = [start("node", "ready: pid", "--metrics-port", "0")]
    try:
        assert health() == 0
        with commands(data, environ) as run:
            run.create()
            run.send("order-17")
        begun.append(start("program", "order-17"))
        begun.append(start("console", "console at", "--port", "0"))
        [(port, token)] = re.findall(r":(\d+)/\?token=(\S+)", logs["console"].read_text())
        assert answer(int(port), token, f"127.0.0.1:{port}") == 200
        assert answer(int(port), token, "example.org") == 421
    finally:
        codes = []
        for process in reversed(begun):  # as compose stops them
            process.terminate()
            codes.append(process.wait(patience(60)))
    assert codes == [0, 0, 0]
    assert health() == 1


def answer(port: int, token: str, host: str) -> int:
    """The status of a page of the console, for a browser that names it *host*."""
    link = HTTPConnection("127.0.0.1", port, timeout=patience(20))
    with closing(link):
        link.request(
            "GET", "/groups.json", headers={"Host": host, "Authorization": f"Bearer {token}"}
        )
        return link.getresponse().status


def servers(pid: int) -> list[int]:
    """The GCS that a process has started."""
    return [each for each, name in children_of(pid).items() if name == "gcs_server"]
