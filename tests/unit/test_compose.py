"""``deploy/compose.yaml`` is valid for Docker Compose, and its parts fit together."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any

import jsonschema
import pytest
import yaml
from support.harness.deployment import DEPLOY, container, documents
from support.harness.source_tree import ROOT

from rocketray.cli.application import command_tree

SCHEMA = json.loads((ROOT / "tests/data/compose/compose-spec.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"].startswith("rocketray:")}
BESIDE = {name: one for name, one in SERVICES.items() if name != "node"}


def test_compose_takes_it() -> None:
    check = jsonschema.Draft7Validator(SCHEMA).validate
    check(COMPOSE)
    wrong = deepcopy(COMPOSE)
    wrong["services"]["node"]["volume"] = ["data:/srv"]
    with pytest.raises(jsonschema.ValidationError, match="'volume' does not match"):
        check(wrong)


def test_every_file_and_volume_that_is_mounted_exists() -> None:
    volumes = [volume for one in SERVICES.values() for volume in one.get("volumes", ())]
    assert volumes
    for volume in volumes:
        source = volume.partition(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
        else:
            assert source in COMPOSE["volumes"]
    built = SERVICES["node"]["build"]
    assert (DEPLOY / built["context"] / built["dockerfile"]).is_file()


def test_programs_are_on_the_machine_of_the_node() -> None:
    for name, one in BESIDE.items():
        assert one["network_mode"] == one["pid"] == "service:node", name
        assert "ports" not in one, "they would be the node's"
        assert one["profiles"], "compose up starts the node alone"
    node = SERVICES["node"]
    assert [*OURS] == ["node", "program", "console"]
    for program in (OURS["program"], OURS["console"]):
        assert (program["ipc"], node["ipc"]) == ("service:node", "shareable")
        for same in ("image", "environment", "volumes", "cap_drop", "security_opt"):
            assert program[same] == node[same]
    assert all(port.startswith("127.0.0.1:") for port in node["ports"])


def test_the_commands_have_only_options_that_exist() -> None:
    tree: Any = command_tree()
    for one in OURS.values():
        program, verb, *words = one["command"]
        assert program == "rocketray"
        options = {name for each in tree.commands[verb].params for name in each.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_the_node_is_as_in_its_pod() -> None:
    """What differs is what compose and Kubernetes have each in a form of their own."""
    template = documents("statefulset.yaml")["StatefulSet"]["spec"]["template"]
    in_pod, node = container(template, "node"), SERVICES["node"]
    assert node["command"][: len(in_pod["command"])] == in_pod["command"]
    variables = {each["name"]: each["value"] for each in in_pod["env"]}
    del variables["RAY_memory_monitor_refresh_ms"]  # compose sets no limit of memory
    assert node["environment"] == variables | {"ROCKETRAY_DATA": node["command"][3]}
    mounts = {PurePosixPath(volume.split(":")[1]) for volume in node["volumes"]}
    in_pod_mounts = {PurePosixPath(each["mountPath"]) for each in in_pod["volumeMounts"]}
    assert in_pod_mounts - mounts == {PurePosixPath("/dev/shm")}  # which is shm_size
    assert node["healthcheck"]["test"] == ["CMD", *in_pod["readinessProbe"]["exec"]["command"]]


def test_prometheus_asks_where_the_node_serves() -> None:
    command = SERVICES["node"]["command"]
    port = command[command.index("--metrics-port") + 1]
    directory = DEPLOY / "prometheus"
    settings = yaml.safe_load((directory / "compose.yml").read_text())
    [job] = settings["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]
    assert all((directory / name).is_file() for name in settings["rule_files"])
    provisioned = yaml.safe_load(
        (directory / "grafana-provisioning/dashboards/rocketray.yaml").read_text()
    )
    [place] = [each["options"]["path"] for each in provisioned["providers"]]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert any(path.startswith(f"{place}/") for path in mounted)
