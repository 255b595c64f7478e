"""Where hosts are started: on the machines with the fewest, among those with the labels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rocketray.errors import ConfigError
from rocketray.hosting import host_placement
from rocketray.hosting.host_placement import (
    host_options,
    least_busy,
    nodes_with,
    plan_here,
    without_cpus,
)
from rocketray.hosting.host_plan import HostPlan

NODE = "ray.io/node-id"


def test_an_actor_asks_for_one_node_and_when_it_is_gone_for_the_labels() -> None:
    plan = HostPlan("trade:app", "orders", code="gcs://x.zip", labels=(("zone", "b"),))
    options = host_options(plan, "n1")
    assert options["label_selector"] == {"zone": "b", NODE: "n1"}
    assert options["fallback_strategy"] == [{"label_selector": {"zone": "b"}}]
    assert options["runtime_env"] == {"working_dir": "gcs://x.zip"}
    assert options["namespace"] == "rocketray-orders"
    assert "runtime_env" not in host_options(HostPlan("trade:app", "orders"), "n1")


@pytest.mark.parametrize(
    ("label", "labels"),
    [
        (("rocketray-disk", "d1"), {"rocketray-disk": "d1", NODE: "n1"}),
        ((NODE, "n1"), {NODE: "n1"}),
    ],
)
def test_hosts_that_stay_here_have_the_label_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, label: tuple[str, str], labels: dict[str, str]
) -> None:
    monkeypatch.setattr(host_placement, "label_of_machine", lambda: label)
    plan = plan_here("trade:app", "default", "/apps")
    assert (plan.directory, plan.labels) == ("/apps", (label,))
    assert host_options(plan, "n1")["label_selector"] == labels
    assert host_options(plan, "n1")["fallback_strategy"] == [{"label_selector": dict([label])}]


def test_nodes_are_chosen_by_label_and_those_that_died_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [
        {"Alive": True, "Labels": {NODE: "n1"}},
        {"Alive": True, "Labels": {NODE: "n2", "zone": "b"}},
        {"Alive": False, "Labels": {NODE: "n3", "zone": "b"}},
    ]
    monkeypatch.setattr(host_placement, "ray", SimpleNamespace(nodes=lambda: nodes))
    assert nodes_with(()) == ["n1", "n2"]
    assert nodes_with((("zone", "b"),)) == ["n2"]
    with pytest.raises(ConfigError) as raised:
        nodes_with((("zone", "c"),))
    assert str(raised.value) == (
        "no machine of the Ray has zone=c; these labels exist: ray.io/node-id=n1, "
        "ray.io/node-id=n2, zone=b"
    )


def test_a_machine_without_cpus_is_left_out_unless_a_label_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = {"Alive": True, "Labels": {NODE: "head"}, "Resources": {"memory": 1.0}}
    nodes = [head, {"Alive": True, "Labels": {NODE: "n1"}, "Resources": {"CPU": 1.0}}]
    monkeypatch.setattr(host_placement, "ray", SimpleNamespace(nodes=lambda: nodes))
    assert (nodes_with(()), without_cpus(())) == (["n1"], ["head"])
    label = ((NODE, "head"),)  # as an app on a data directory has it
    assert (nodes_with(label), without_cpus(label)) == (["head"], [])
    nodes.pop()
    assert (nodes_with(()), without_cpus(())) == (["head"], [])


def test_a_host_whose_machine_is_lost_goes_to_one_without_cpus_last() -> None:
    plan = HostPlan("trade:app", "orders", labels=(("zone", "b"),))
    options = host_options(plan, "n1", left_out=["n2", "n3"])
    assert options["fallback_strategy"] == [
        {"label_selector": {"zone": "b", NODE: "!in(n2,n3)"}},
        {"label_selector": {"zone": "b"}},
    ]


@pytest.mark.parametrize(
    ("own", "others", "count", "chosen"),
    [
        ([], [], 3, ["a", "b", "a"]),
        ([], ["a"], 2, ["b", "a"]),  # ten small apps are not all on one machine
        (["a", "a"], [], 3, ["b", "b", "a"]),
        (["a"], ["b", "b", "b"], 1, ["b"]),  # an app is spread first
        (["gone"], ["gone"], 2, ["a", "b"]),
    ],
)
def test_hosts_are_spread(own: list[str], others: list[str], count: int, chosen: list[str]) -> None:
    assert least_busy(["a", "b"], own, others, count) == chosen


def test_cpus_that_no_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"Alive": True, "Labels": {NODE: f"n{cpus}"}, "Resources": {"CPU": cpus}} for cpus in (2, 8)
    ]
    monkeypatch.setattr(host_placement, "ray", SimpleNamespace(nodes=lambda: nodes))
    assert nodes_with((), 4) == ["n8"]
    with pytest.raises(ConfigError, match="no machine of the Ray has num_cpus=16, which the app's"):
        nodes_with((), 16)
    plan = HostPlan("trade:app", "orders")
    assert (host_options(plan, "n8", 4)["num_cpus"], host_options(plan, "n8")["num_cpus"]) == (4, 0)
