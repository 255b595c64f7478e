"""The samples in ``deploy`` are valid for what reads them, and supervise what they start."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml
from ray._raylet import NODE_ZONE_ENV  # type: ignore[attr-defined]  # a compiled module
from support.harness.command_server import run_here
from support.harness.deployment import DEPLOY, MOUNT, at, container, documents, path_with
from support.harness.machine import needs
from support.harness.patience import patience
from support.harness.source_tree import ROOT

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.runtime.ray_process.ray_runtime import DISK_LABEL

SCHEMAS = ROOT / "tests/data/kubernetes/schemas.json"
FILES = ("kuberay.yaml", "statefulset.yaml")
DISK = "0b2e9d0e-9a35-4d1f-8d3f-6c7f0f1f9a11"


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
        ("kuberay.yaml", ("PodDisruptionBudget", "spec", "maxUnavailables"), 1),
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
    for name in FILES:
        stateful = documents(name)["StatefulSet"]
        assert stateful["spec"]["serviceName"] == documents(name)["Service"]["metadata"]["name"]
        selected = stateful["spec"]["selector"]["matchLabels"].items()
        assert selected <= stateful["spec"]["template"]["metadata"]["labels"].items()
        node = node_of(name)
        (claim,) = stateful["spec"]["volumeClaimTemplates"]
        assert {"name": claim["metadata"]["name"], "mountPath": MOUNT} in node["volumeMounts"]
        assert stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 120


def node_of(name: str) -> dict[str, Any]:
    """The container of a node in the StatefulSet of a file."""
    template = documents(name)["StatefulSet"]["spec"]["template"]
    return container(template, "disk" if name == "kuberay.yaml" else "node")


@pytest.mark.parametrize("name", FILES)
def test_the_probes_ask_the_node_and_kill_none_that_starts_or_recovers(
    tmp_path: Path, name: str
) -> None:
    """The commands are run; tests/unit/cli/nodes/test_ping.py has a node that answers or hangs."""
    node = node_of(name)
    ready = at(tmp_path, node["readinessProbe"]["exec"]["command"])
    alive = at(tmp_path, node["livenessProbe"]["exec"]["command"])
    assert ready == ["rocketray", "ping", "--data", f"{tmp_path}/data"]
    assert alive == ["rocketray", "ping", "--if-running", "--data", f"{tmp_path}/data"]
    assert "startupProbe" not in node  # a limit for a recovery, which may take any time
    (tmp_path / "data").mkdir()
    assert [run_here(*words[1:]).code for words in (ready, alive)] == [1, 0]
    for probe in (node["readinessProbe"], node["livenessProbe"]):
        assert probe["timeoutSeconds"] >= 10  # Python starts, also on a busy machine


def test_no_two_disks_are_on_one_machine_and_none_is_on_that_of_the_head() -> None:
    objects = documents("kuberay.yaml")
    disks = objects["StatefulSet"]["spec"]["template"]
    head = objects["RayCluster"]["spec"]["headGroupSpec"]["template"]
    for template in (disks, head):
        rules = template["spec"]["affinity"]["podAntiAffinity"]
        (rule,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        selected = rule["labelSelector"]["matchLabels"]
        assert selected.items() <= disks["metadata"]["labels"].items()
    (spread,) = disks["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert spread["labelSelector"]["matchLabels"].items() <= disks["metadata"]["labels"].items()


def test_a_raylet_of_a_disk_has_the_zone_of_its_pod() -> None:
    variables = {each["name"]: each for each in node_of("kuberay.yaml")["env"]}
    field = variables[NODE_ZONE_ENV]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.labels['topology.kubernetes.io/zone']"


def test_a_drain_of_machines_takes_one_disk_at_a_time() -> None:
    objects = documents("kuberay.yaml")
    budget = objects["PodDisruptionBudget"]["spec"]
    labels = objects["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    head = objects["RayCluster"]["spec"]["headGroupSpec"]["template"]["metadata"]["labels"]
    assert not budget["selector"]["matchLabels"].items() <= head.items()


def test_a_changed_image_waits_for_the_operator_since_versions_of_ray_do_not_mix() -> None:
    objects = documents("kuberay.yaml")
    assert objects["StatefulSet"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert objects["RayCluster"]["spec"]["upgradeStrategy"] == {"type": "None"}


def test_the_head_has_no_disk() -> None:
    head = documents("kuberay.yaml")["RayCluster"]["spec"]["headGroupSpec"]["template"]["spec"]
    assert all("emptyDir" in volume for volume in head["volumes"])
    assert "command" not in head["containers"][0]  # KubeRay's own: ray start


def test_no_pod_has_a_token_for_kubernetes() -> None:
    """Ray runs the code of every program that has Ray's token, in each of these pods."""
    for template in templates():
        assert template["spec"]["automountServiceAccountToken"] is False


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


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_first_disk_begins_the_cluster_and_the_others_join_it_with_its_register(
    tmp_path: Path, number: int
) -> None:
    cluster, disk = documents("kuberay.yaml")["RayCluster"], node_of("kuberay.yaml")
    path = path_with(tmp_path, {"rocketray-machine": '#!/bin/sh\necho "$*"\n'})
    variables = {each["name"]: each for each in disk["env"]}
    assert variables["POD"]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name"}
    register = variables["REGISTER"]["value"]
    name = documents("kuberay.yaml")["StatefulSet"]["metadata"]["name"]
    environ = {"PATH": path, "POD": f"{name}-{number}", "REGISTER": register}
    said = subprocess.run(
        [*disk["command"], *disk["args"]],
        env=environ, capture_output=True, text=True, timeout=patience(60), check=True,
    ).stdout  # fmt: skip
    joins = " --join" if number else ""
    head = f"{cluster['metadata']['name']}-head-svc:6379"
    assert said == (
        f"{MOUNT}/data --cluster {DEFAULT_CLUSTER}{joins} --register {register} "
        f"ray start --address={head} --num-cpus=0\n"
    )


def test_a_disk_has_the_token_of_its_ray() -> None:
    cluster, disk = documents("kuberay.yaml")["RayCluster"], node_of("kuberay.yaml")
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
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    pods_only, names, register = policy["egress"]
    assert pods_only == {"to": [{"podSelector": {"matchLabels": own}}]}
    assert {port["port"] for port in names["ports"]} == {53}
    (port,) = register["ports"]
    url = {each["name"]: each for each in node_of("kuberay.yaml")["env"]}["REGISTER"]["value"]
    assert urlsplit(url).port == port["port"]
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
    node = f"#!/bin/sh\necho {DISK}\n" if has_disk else "#!/bin/sh\nexit 1\n"
    path = path_with(tmp_path / "bin", {"ray": '#!/bin/sh\necho "$*"\n', "rocketray": node})
    script = words[-1].replace("$$", "$").replace("/opt/rocketray/bin/", "")
    done = subprocess.run(
        [*words[:-1], script.replace(MOUNT, str(tmp_path))],
        env={**os.environ, "PATH": path, "RAY_START": "--head --port=6379"},
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    started = f"start --head --port=6379 --block --disable-usage-stats --labels={DISK_LABEL}={DISK}"
    assert (done.returncode, done.stdout) == ((0, f"{started}\n") if has_disk else (1, ""))
