"""The commands of the samples in ``deploy`` run as they stand, survive their Ray, and lose nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.another_ray import planned_ray, runs
from support.commands import printed, rocketray
from support.deployment import DEPLOY, at, container, documents, environ_of, path_with

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.long(reason="a Ray and a node on it start twice"),
]
_READY_S = 120.0


def await_ready(log: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_S
    while log.read_text().count("ready: pid") < count:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def send(data: Path, body: str, environ: Mapping[str, str]) -> None:
    done = rocketray("send", "Trade", body, "--ack", "disk", "--data", data, environ=environ)
    assert done.returncode == 0, done.stderr


def bodies(data: Path, environ: Mapping[str, str]) -> list[str]:
    found = rocketray("query", "Trade", "--from", "0", "--json", "--data", data, environ=environ)
    return sorted(b64decode(each["body"]).decode() for each in printed(found))


def create(data: Path, environ: Mapping[str, str]) -> None:
    words = ("topics", "create", "Trade", "--queues", "1", "--queues-per-process", "shared")
    done = rocketray(*words, "--data", data, environ=environ)
    assert done.returncode == 0, done.stderr


def test_the_head_of_kuberay_comes_back_with_its_messages(tmp_path: Path) -> None:
    head = container(
        documents("kuberay.yaml")["RayCluster"]["spec"]["headGroupSpec"]["template"], "ray-head"
    )
    data, log = tmp_path / "data", tmp_path / "log"
    path = path_with(tmp_path / "bin", {"rocketray-head": DEPLOY / "head.sh"})
    with tempfile.TemporaryDirectory(prefix="ray-") as directory:
        ray = planned_ray(directory)
        environ = {**ray.environ, **environ_of(head, tmp_path)}
        environ |= {
            "PATH": path,
            "RAY_ADDRESS": ray.address,
            "KUBERAY_GEN_RAY_START_CMD": " ".join(["ray", *ray.start_words(), "--block"]),
        }
        with log.open("w") as output:
            supervisor = subprocess.Popen(
                [*head["command"], *at(tmp_path, head["args"])],
                env=environ, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            await_ready(log, 1, supervisor)
            assert "depend on the raylet" not in log.read_text()  # the label binds the actors
            create(data, environ)
            send(data, "before", environ)
            first = ray.servers()
            os.kill(first["gcs_server"], signal.SIGKILL)
            await_ready(log, 2, supervisor)
            assert f"the node on {data} ends: Ray is lost" in log.read_text()
            send(data, "after", environ)
            assert bodies(data, environ) == ["after", "before"]
            second = ray.servers()
            assert second.keys() == first.keys()
            assert not second.items() & first.items()
            supervisor.terminate()
            assert supervisor.wait(60) == 0, log.read_text()
            assert [pid for pid in second.values() if runs(pid)] == []
            assert "stopping" in log.read_text()  # the node, in order
        finally:
            supervisor.kill()
            ray.stop()


def test_a_stateful_set_comes_back_with_its_messages_and_serves_its_program(tmp_path: Path) -> None:
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
        assert subprocess.run(is_ready, check=False).returncode == 0
        return process

    first = start(1)
    try:
        create(data, environ)
        send(data, "before", environ)
        (gcs,) = children(first.pid, "gcs_server")
        os.kill(gcs, signal.SIGKILL)
        assert first.wait(30) == 1  # so Kubernetes starts its container again
        assert subprocess.run(is_ready, check=False).returncode == 1
    finally:
        first.kill()
    second = start(2)
    try:
        send(data, "after", environ)
        assert bodies(data, environ) == ["after", "before"]
        consumer = subprocess.Popen(
            at(tmp_path, program["command"]),
            env=environ | environ_of(program, tmp_path), stdout=subprocess.PIPE,
        )  # fmt: skip
        assert consumer.stdout
        with consumer.stdout as lines:
            got = [lines.readline().decode() for _ in range(2)]
            consumer.terminate()
            consumer.wait(60)
        assert ["before" in got[0], "after" in got[1]] == [True, True], got
    finally:
        second.terminate()
        assert second.wait(60) == 0


def children(pid: int, name: str) -> list[int]:
    """The processes below *pid* with that name."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            own, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == pid and own.partition("(")[2] == name:
            found.append(int(stat.parent.name))
    return found
