"""The rules and the dashboard in ``deploy/prometheus`` ask for metrics and labels that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from support.harness.deployment import DEPLOY
from support.harness.machine import needs
from support.harness.source_tree import ROOT

from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.system_api import TransactionOverview
from rocketray.services.health.node_readings import NodeReadings
from rocketray.services.metrics.metric_families import families_of

RULES = DEPLOY / "prometheus/rocketray.rules.yml"
DASHBOARD = DEPLOY / "prometheus/grafana-dashboard.json"
RULES_TEST = ROOT / "tests/data/prometheus/rules_test.yml"
NO_METRICS = {"and", "or", "unless", "bool", "on", "by", "ignoring", "group_left", "group_right"}
NOT_SHOWN = {
    "rocketmq_storage_flush_behind_bytes",  # the panel has its seconds
    "rocketray_lag_exact",
    "rocketray_refused_batches_total",
    "rocketray_unknown",  # one of the kinds of rocketray_troubles
}
LABELS_OF = {"kafka": {"partition", "group", "consumergroup"}}
"""Labels that the rules themselves make, by the first word of the metrics that have them."""


def served() -> dict[str, set[str]]:
    """The labels of each metric of the endpoint, by name."""
    described = GroupDescription(
        "g", "T", Subscription.sql("a > 1"), {0: 1}, {}, {}, NO_COUNTERS, 0
    )
    readings = NodeReadings("c", 1, {}, [described], transactions=TransactionOverview(), delayed=0)
    found = {}
    for family in families_of(replace(readings, unknown={"a part": "it does not answer"})):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = set(family._labelnames)  # type: ignore[attr-defined]  # of each kind
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[str]:
    """The expressions of the dashboard's panels and variables."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def names_in(expression: str) -> dict[str, set[str]]:
    """The metrics in an expression of PromQL, each with the labels that its matchers name."""
    rest = re.sub(r'"[^"]*"', '""', expression)
    rest = re.sub(r"\[[^]]*\]", "", rest)
    rest = re.sub(r"\b(by|on|ignoring|group_left|group_right) *\([^)]*\)", " ", rest)
    rest = re.sub(r"(label_values\([^,]*), \w+\)", r"\1)", rest)
    found: dict[str, set[str]] = {}
    for name, after in re.findall(r"(?<![\w:$])([a-zA-Z_][\w:]*)(?![\w:]) *(\(|{[^}]*})?", rest):
        if after != "(" and name not in NO_METRICS:
            found.setdefault(name, set()).update(re.findall(r"(\w+) *[=!]", after))
    return found


def grouped_by(expression: str) -> set[str]:
    clauses = re.findall(r"\b(?:by|on) *\(([^)]*)\)", expression)
    return {label.strip() for clause in clauses for label in clause.split(",")}


def known() -> dict[str, set[str]]:
    """The labels of all metrics, recorded ones included: these may have any of the labels."""
    found = served()
    every = set().union(*found.values())
    for rule in rules():
        if "record" in rule:
            made = LABELS_OF.get(rule["record"].partition("_")[0], set())
            found[rule["record"]] = every | made
    return found


@pytest.mark.parametrize(
    "expression", [*(rule["expr"] for rule in rules()), *queries()], ids=lambda text: text[:60]
)
def test_each_metric_that_is_asked_for_exists(expression: str) -> None:
    there = known()
    asked = names_in(expression)
    assert asked, expression
    for name, labels in asked.items():
        assert name in there, f"no metric is named {name}"
        assert labels <= there[name], f"{name} has not all of the labels {labels}"
    every = set().union(*there.values())
    assert grouped_by(expression) <= every


def test_a_wrong_name_would_be_found() -> None:
    wrong = 'sum by (topic) (rate(rocketmq_messages_into_total{topic="a", queue="b"}[2m])) > bool 0'
    assert names_in(wrong) == {"rocketmq_messages_into_total": {"topic", "queue"}}
    assert names_in('a:b:rate2m / on (x) (c{d=~"$e"} > 0) unless f') == {
        "a:b:rate2m": set(),
        "c": {"d"},
        "f": set(),
    }


def test_every_alert_says_what_and_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert alerts
    for alert in alerts:
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["annotations"].keys() == {"summary", "description"}
        used = set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"])))
        [*metrics] = names_in(alert["expr"])
        assert used <= known()[metrics[0]]


def test_the_dashboard_shows_every_family_of_a_group() -> None:
    text = DASHBOARD.read_text() + RULES.read_text()
    assert not [name for name in served() if name not in text and name not in NOT_SHOWN]


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < 24
        cells |= own


@needs("promtool")
def test_promtool_finds_no_mistake_and_the_figures_of_the_rules() -> None:
    for verb, file in (("check", RULES), ("test", RULES_TEST)):
        done = subprocess.run(
            ["promtool", verb, "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
