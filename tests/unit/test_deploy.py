"""The samples in ``deploy`` are valid for what reads them, and supervise what they start."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support.deployment import DEPLOY, MOUNT, container, documents, path_with
from support.machine import needs
from support.patience import patience, wait_until
from support.source_tree import ROOT

from rocketray.actors.ray_process.ray_runtime import DISK_LABEL
from rocketray.cluster import DEFAULT_CLUSTER

SCHEMAS = ROOT / "tests/data/kubernetes/schemas.json"
FILES = ("kuberay.yaml", "statefulset.yaml")
DISK = "0b2e9d0e-9a35-4d1f-8d3f-6c7f0f1f9a11"

# Ray and the node as far as a supervisor sees them; what they are told is in $SAID.
RAY = """#!/bin/bash
echo "ray $*" >> "$SAID"
[ "$1" = start ] || exit 1
echo $$ > "$SAID.ray"
ln -sf "$(command -v sleep)" "${0%/*}/raylet"
raylet 60 & echo $! > "$SAID.raylet"
trap 'kill $!; exit 0' TERM
while [ -e "$SAID.slow" ]; do sleep 0.1; done
exec 8> "${SAID%/*}/ray_process_exit.log"
while sleep 0.1; do :; done
"""
NODE = f"""#!/bin/bash
case $1 in
  disk) mkdir -p "$3"; echo {DISK};;
  start)
    trap 'sleep 0.2; echo saved >> "$SAID"; exit 0' TERM
    echo $$ > "$SAID.node"; echo "node $*" >> "$SAID"
    while kill -0 "$(cat "$SAID.ray")"; do sleep 0.05; done
    exit 1;;
esac
"""


def check(kind: str, value: dict[str, Any]) -> None:
    schemas = json.loads(SCHEMAS.read_text())
    jsonschema.validate(value, schemas | {"$ref": f"#/$defs/{kind}"})


@pytest.mark.parametrize("name", FILES)
def test_kubernetes_takes_every_object(name: str) -> None:
    for kind, value in documents(name).items():
        check(kind, value)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("kuberay.yaml", ("RayCluster", "spec", "headGroupSpecs"), {}),
        ("kuberay.yaml", ("RayCluster", "spec", "authOptions", "mode"), "password"),
        ("kuberay.yaml", ("RayCluster", "spec", "headGroupSpec", "rayStartParams", "x"), 1),
        ("kuberay.yaml", ("RayCluster", "spec", "headGroupSpec", "template", "spec", "volume"), []),
        ("kuberay.yaml", ("PersistentVolumeClaim", "spec", "storage"), "1Gi"),
        ("statefulset.yaml", ("StatefulSet", "spec", "replicas"), "one"),
        ("statefulset.yaml", ("StatefulSet", "spec", "selector"), "app=rocketray"),
    ],
)
def test_kubernetes_would_refuse_a_mistake(name: str, path: tuple[str, ...], value: object) -> None:
    wrong: Any = deepcopy(documents(name))
    place = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        check(path[0], wrong[path[0]])


def test_kubernetes_takes_the_redis_that_a_comment_describes() -> None:
    text = (DEPLOY / "kuberay.yaml").read_text()
    lines = text[text.index("  # gcsFaultToleranceOptions:") :].splitlines()
    options = yaml.safe_load("\n".join(line[4:] for line in lines if line.startswith("  # ")))
    cluster = documents("kuberay.yaml")["RayCluster"]
    cluster["spec"] |= options
    assert options.keys() == {"gcsFaultToleranceOptions"}
    check("RayCluster", cluster)
    del cluster["spec"]["gcsFaultToleranceOptions"]["redisAddress"]
    with pytest.raises(jsonschema.ValidationError):
        check("RayCluster", cluster)


def templates() -> Iterator[dict[str, Any]]:
    cluster = documents("kuberay.yaml")["RayCluster"]["spec"]
    yield cluster["headGroupSpec"]["template"]
    yield from (group["template"] for group in cluster["workerGroupSpecs"])
    yield from (documents(name)["StatefulSet"]["spec"]["template"] for name in FILES)


def test_a_container_mounts_what_its_pod_has_and_every_pod_has_shared_memory() -> None:
    sets = [documents(name)["StatefulSet"]["spec"] for name in FILES]
    claimed = {claim["metadata"]["name"] for each in sets for claim in each["volumeClaimTemplates"]}
    for template in templates():
        volumes = {each["name"]: each for each in template["spec"]["volumes"]}
        for each in template["spec"]["containers"]:
            mounts = {mount["mountPath"]: mount["name"] for mount in each["volumeMounts"]}
            assert set(mounts.values()) <= volumes.keys() | claimed
            assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"


def test_rays_objects_leave_most_of_the_shared_memory_to_the_messages() -> None:
    """By default Ray takes 30 % of the memory for them, and puts them on the disk if they do not fit."""
    of_ray = {"ray-head", "ray-worker", "disk", "node"}
    found = []
    for template in templates():
        volumes = {each["name"]: each for each in template["spec"]["volumes"]}
        (size,) = (
            each["emptyDir"]["sizeLimit"]
            for each in volumes.values()
            if "medium" in each.get("emptyDir", {})
        )
        for each in template["spec"]["containers"]:
            if each["name"] in of_ray:
                variables = {one["name"]: one.get("value") for one in each["env"]}
                store = int(variables["RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"])
                assert store * 4 <= int(size.removesuffix("Gi")) << 30
                found.append(each["name"])
    assert {*found} == of_ray


def test_every_container_has_no_more_rights_than_a_restricted_namespace_allows() -> None:
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for template in templates():
        own = template["spec"]["securityContext"]
        assert own["runAsNonRoot"] is True
        assert own["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in template["spec"]["containers"]:
            assert each["securityContext"] == rights


def test_a_program_ends_before_the_ray_that_it_uses() -> None:
    (group,) = documents("kuberay.yaml")["RayCluster"]["spec"]["workerGroupSpecs"]
    node = documents("statefulset.yaml")["StatefulSet"]["spec"]["template"]
    for template, ray in ((group["template"], "ray-worker"), (node, "node")):
        assert "preStop" in container(template, ray)["lifecycle"]
        assert "lifecycle" not in container(template, "program")


def test_the_data_of_a_node_outlives_its_pod_and_its_pod_waits_for_it() -> None:
    objects = documents("kuberay.yaml")
    head = objects["RayCluster"]["spec"]["headGroupSpec"]["template"]
    (claim,) = (
        each["persistentVolumeClaim"]["claimName"]
        for each in head["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    )
    assert claim == objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert {"name": "data", "mountPath": MOUNT} in container(head, "ray-head")["volumeMounts"]
    for name in FILES:
        stateful = documents(name)["StatefulSet"]
        assert stateful["spec"]["serviceName"] == documents(name)["Service"]["metadata"]["name"]
        selected = stateful["spec"]["selector"]["matchLabels"].items()
        assert selected <= stateful["spec"]["template"]["metadata"]["labels"].items()
        (node,) = (
            each
            for each in stateful["spec"]["template"]["spec"]["containers"]
            if each["name"] in {"node", "disk"}
        )
        assert {"name": "data", "mountPath": MOUNT} in node["volumeMounts"]
        assert stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 120
    assert head["spec"]["terminationGracePeriodSeconds"] >= 120


def test_a_program_sees_the_processes_and_files_of_the_ray_in_its_pod() -> None:
    (group,) = documents("kuberay.yaml")["RayCluster"]["spec"]["workerGroupSpecs"]
    node = documents("statefulset.yaml")["StatefulSet"]["spec"]["template"]
    for template, ray in ((group["template"], "ray-worker"), (node, "node")):
        assert template["spec"]["shareProcessNamespace"] is True
        mounts = container(template, ray)["volumeMounts"]
        assert container(template, "program")["volumeMounts"] == mounts
        assert {"name": "tmp", "mountPath": "/tmp"} in mounts


def test_a_program_beside_a_worker_joins_the_ray_of_the_cluster() -> None:
    cluster = documents("kuberay.yaml")["RayCluster"]
    (group,) = cluster["spec"]["workerGroupSpecs"]
    variables = {each["name"]: each for each in container(group["template"], "program")["env"]}
    assert variables["RAY_ADDRESS"]["value"] == f"{cluster['metadata']['name']}-head-svc:6379"
    assert variables["ROCKETRAY_CLUSTER"]["value"] == DEFAULT_CLUSTER
    secret = variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": cluster["spec"]["authOptions"]["secretName"], "key": "auth_token"}


def test_a_disk_joins_the_cluster_of_the_head_with_its_token() -> None:
    objects = documents("kuberay.yaml")
    cluster = objects["RayCluster"]
    disk = container(objects["StatefulSet"]["spec"]["template"], "disk")
    words = shlex.split(disk["args"][0])
    address = f"--address={cluster['metadata']['name']}-head-svc:6379"
    assert words[words.index("--cluster") + 1] == DEFAULT_CLUSTER
    assert {"--join", address, "--num-cpus=0"} <= {*words}
    variables = {each["name"]: each for each in disk["env"]}
    assert variables["RAY_AUTH_MODE"]["value"] == cluster["spec"]["authOptions"]["mode"]
    secret = variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": cluster["spec"]["authOptions"]["secretName"], "key": "auth_token"}


def test_ray_on_kubernetes_asks_for_the_token_and_is_open_to_its_pods_only() -> None:
    objects = documents("kuberay.yaml")
    cluster = objects["RayCluster"]["spec"]
    assert cluster["authOptions"]["mode"] == "token"
    policy = objects["NetworkPolicy"]["spec"]
    own = policy["podSelector"]["matchLabels"]
    (rule,) = policy["ingress"]
    assert rule == {"from": [{"podSelector": {"matchLabels": own}}]}
    pods = [cluster["headGroupSpec"]["template"], objects["StatefulSet"]["spec"]["template"]]
    for template in (*pods, *(group["template"] for group in cluster["workerGroupSpecs"])):
        assert own.items() <= template["metadata"]["labels"].items()


def test_the_image_has_the_frozen_ray() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    (frozen,) = re.findall(r"^ray==(\S+)$", lock, re.MULTILINE)
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert f"FROM rayproject/ray:{frozen}-py311\n" in dockerfile
    assert documents("kuberay.yaml")["RayCluster"]["spec"]["rayVersion"] == frozen
    for source in re.findall(r"sudo install ([^-\s]\S*)", dockerfile):
        assert (ROOT / source).exists()


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / name).read_text())
    return parser


@needs("systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    units = [tmp_path / name for name in ("ray.service", "rocketray.service")]
    for each in units:
        text = (DEPLOY / each.name).read_text()
        each.write_text(text.replace("/opt/rocketray/bin", str(Path(sys.executable).parent)))
    assert verified(units) == ""
    units[1].write_text(units[1].read_text().replace("KillMode=", "KillMood="))
    assert "KillMood" in verified(units)


def verified(units: list[Path]) -> str:
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, units)],
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_units_start_again_whatever_happens_and_wait_for_the_disk() -> None:
    for name in ("ray.service", "rocketray.service"):
        parsed = unit(name)
        assert parsed["Service"]["Restart"] == "always"
        assert parsed["Unit"]["StartLimitIntervalSec"] == "0"
        assert parsed["Unit"]["RequiresMountsFor"] == MOUNT
        assert parsed["Unit"]["AssertPathIsMountPoint"] == MOUNT  # also if nothing would mount it
        assert parsed["Service"]["KillMode"] == "mixed"
        assert parsed["Service"]["OOMPolicy"] == "continue"  # by default, systemd would end all
    assert unit("ray.service")["Service"]["SuccessExitStatus"] == "1"  # that of ray start --block
    assert int(unit("rocketray.service")["Service"]["TimeoutStopSec"]) >= 120


def test_the_unit_of_a_node_takes_options_from_the_environment_of_its_machine() -> None:
    command = unit("rocketray.service")["Service"]["ExecStart"]
    assert command.endswith(f"/rocketray start --data {MOUNT}/data $START")  # split into words


@pytest.mark.parametrize("has_disk", [True, False])
def test_the_unit_of_ray_gives_it_the_label_of_the_disk(tmp_path: Path, *, has_disk: bool) -> None:
    words = shlex.split(unit("ray.service")["Service"]["ExecStart"])
    node = NODE if has_disk else "#!/bin/sh\nexit 1\n"
    path = path_with(tmp_path / "bin", {"ray": '#!/bin/sh\necho "$*"\n', "rocketray": node})
    script = words[-1].replace("$$", "$").replace("/opt/rocketray/bin/", "")
    done = subprocess.run(
        [*words[:-1], script.replace(MOUNT, str(tmp_path))],
        env={**os.environ, "PATH": path, "RAY_START": "--head --port=6379"},
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    started = f"start --head --port=6379 --block --disable-usage-stats --labels={DISK_LABEL}={DISK}"
    assert (done.returncode, done.stdout) == ((0, f"{started}\n") if has_disk else (1, ""))


class Supervisor:
    """``machine.sh`` over programs that stand in for Ray and the node."""

    def __init__(self, directory: Path, *options: str, is_slow: bool = False) -> None:
        self.data = directory / "data"
        self.said = directory / "said"
        self.slow = directory / "said.slow"
        """While it is there, ``ray start`` has not started Ray yet."""
        if is_slow:
            self.slow.touch()
        path = path_with(directory / "bin", {"ray": RAY, "rocketray": NODE})
        self.environ = {**os.environ, "PATH": path, "SAID": str(self.said)}
        self.command = [
            str(DEPLOY / "machine.sh"),
            str(self.data),
            *options,
            "ray",
            "start",
            "--head",
        ]
        self.process = subprocess.Popen(self.command, env=self.environ)

    def lines(self) -> list[str]:
        return self.said.read_text().splitlines() if self.said.exists() else []

    def await_lines(self, count: int) -> list[str]:
        def are_there() -> bool:
            assert self.process.poll() is None
            return len(self.lines()) >= count

        wait_until(are_there, self.lines)
        return self.lines()

    def pid(self, of: str) -> int:
        """The process of that name: its id is written a moment after the line about it."""
        told = Path(f"{self.said}.{of}")
        return int(wait_until(lambda: told.read_text().strip() if told.is_file() else ""))


@contextmanager
def supervised(directory: Path, *options: str, is_slow: bool = False) -> Iterator[Supervisor]:
    made = Supervisor(directory, *options, is_slow=is_slow)
    try:
        made.await_lines(1 if is_slow else 2)
        yield made
    finally:
        made.process.terminate()
        made.process.wait(patience(60))


def test_the_head_starts_ray_with_the_label_and_the_node_on_it(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        assert head.lines() == [
            f"ray start --head --labels={DISK_LABEL}={DISK} --block",
            f"node start --ray-address auto --data {head.data}",
        ]
        os.kill(head.process.pid, signal.SIGTERM)
        assert head.process.wait(patience(60)) == 0
        assert head.lines()[2:] == ["saved"]
        assert not Path(f"/proc/{head.pid('ray')}").exists()


def test_a_node_that_ends_is_started_again_on_the_same_ray(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        os.kill(head.pid("node"), signal.SIGKILL)
        assert head.await_lines(3)[2].startswith("node start ")


def test_when_ray_fails_both_are_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        os.kill(head.pid("ray"), signal.SIGKILL)
        ray, node = head.await_lines(4)[2:]
        assert (ray, node) == tuple(head.lines()[:2])


def test_a_ray_that_was_stopped_is_not_started_again(tmp_path: Path) -> None:
    """``ray stop`` ends the servers, and ``ray start --block`` waits on."""
    with supervised(tmp_path) as head:
        os.kill(head.pid("raylet"), signal.SIGTERM)
        os.kill(head.pid("node"), signal.SIGTERM)
        assert head.process.wait(patience(60)) == 0
        assert head.lines()[2:] == ["saved"]


def test_a_ray_that_fails_slowly_is_started_again(tmp_path: Path) -> None:
    """Its raylet has ended, and ``ray start --block`` ends what else there is of it."""
    with supervised(tmp_path) as head:
        ray = head.pid("ray")
        os.kill(head.pid("raylet"), signal.SIGKILL)
        os.kill(head.pid("node"), signal.SIGKILL)
        time.sleep(4.0)  # machine.sh looks at both after 2 s
        assert Path(f"/proc/{ray}").exists()
        os.kill(ray, signal.SIGKILL)
        assert head.await_lines(4)[2:] == head.lines()[:2]


def test_a_node_begins_when_ray_has_started_and_nothing_else_of_ray_is_run_meanwhile(
    tmp_path: Path,
) -> None:
    with supervised(tmp_path, is_slow=True) as head:
        head.pid("raylet")
        time.sleep(1.5)  # machine.sh looks every half second
        (started,) = head.lines()
        head.slow.unlink()
        assert head.await_lines(2) == [started, f"node start --ray-address auto --data {head.data}"]


def test_a_raylet_that_ends_early_is_no_ray_that_was_stopped(tmp_path: Path) -> None:
    """``ray start`` notices it late, since it still waits for it to join the cluster."""
    with supervised(tmp_path, is_slow=True) as head:
        os.kill(head.pid("raylet"), signal.SIGKILL)
        time.sleep(1.5)
        (started,) = head.lines()
        head.slow.unlink()
        os.kill(head.pid("ray"), signal.SIGKILL)
        again, node = head.await_lines(3)[1:]
        assert (again, node.split()[:2]) == (started, ["node", "start"])


def test_a_node_that_joins_is_told_so_and_is_started_again_while_its_raylet_lives(
    tmp_path: Path,
) -> None:
    with supervised(tmp_path, "--cluster", "orders", "--join") as worker:
        node = f"node start --ray-address auto --data {worker.data} --cluster orders --join"
        assert worker.lines()[1] == node
        os.kill(worker.pid("node"), signal.SIGTERM)  # as it ends when the head is lost
        assert worker.await_lines(4)[2:] == ["saved", node]


def test_a_command_for_ray_is_required(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(DEPLOY / "machine.sh"), str(tmp_path), "--join"],
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("machine.sh: no command starts Ray; usage: ")


def test_one_process_keeps_a_node_running(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        second = subprocess.run(
            head.command,
            env=head.environ,
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
        assert second.returncode == 1
        assert f"process {head.process.pid} keeps a node on {head.data} running" in second.stderr
        assert len(head.lines()) == 2
