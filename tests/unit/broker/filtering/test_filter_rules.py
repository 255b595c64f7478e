"""What the operator said stays said, and what a node does not filter by is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError, PredicateError, StoreError, SubscriptionRefusedError
from rocketray.filters.subscription import Subscription


def test_the_rules_are_kept_for_the_next_start(tmp_path: Path) -> None:
    assert FilterRules.load(tmp_path) == FilterRules()
    rules = FilterRules(("shop.filters", "shop.more:is_large"), 50, property_filter=False)
    rules.save(tmp_path)
    assert FilterRules.load(tmp_path) == rules
    assert rules.allowing(["app:f", "shop.filters"]).allowed == (*rules.allowed, "app:f")
    for wrong in ("", "a b", "a:b:c", "shop.*", "../a"):
        with pytest.raises(ConfigError, match="is neither a module"):
            FilterRules((wrong,))
    with pytest.raises(ConfigError, match="0 ms"):
        FilterRules((), 0)


def test_a_group_that_may_not_filter_so_does_not_join(tmp_path: Path) -> None:
    rules = FilterRules(("support.predicates",), property_filter=False)
    with LocalNode(tmp_path / "data", rules) as node:
        node.topics.ensure("Trade", 1)
        with pytest.raises(
            SubscriptionRefusedError, match=r"SYSTEM_ERROR \(1\): SQL92 is switched"
        ):
            node.consumer("g", "Trade", Subscription.sql("a > 5"))
        assert node.state.registry.describe({"Trade": 1}, 0) == []
        node.consumer("g", "Trade", Subscription.tags("a")).close()
        node.consumer("h", "Trade", Subscription.where("support.predicates:is_even")).close()


def test_what_comes_from_elsewhere_is_checked_again() -> None:
    rules = FilterRules()
    rules.check("g", "T", Subscription.sql("a > 5"))
    for wrong in (Subscription.sql("a >"), Subscription.tags("||"), Subscription.where("a")):
        with pytest.raises(SubscriptionRefusedError, match=r"SUBSCRIPTION_PARSE_FAILED \(23\): "):
            replace(rules, property_filter=False).check("g", "T", wrong)
    with pytest.raises(PredicateError, match="not allowed"):
        rules.check("g", "T", Subscription.where("shop:f"))


@pytest.mark.parametrize("content", ['{"allowedPredicates": ["a"]}', '{"allowedPredicates": 5}'])
def test_a_damaged_file_of_rules_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config" / "filterRules.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(StoreError, match=r"filterRules\.json has no valid filter rules"):
        FilterRules.load(tmp_path)


def test_rules_that_were_removed_are_never_those_of_before(tmp_path: Path) -> None:
    path = tmp_path / "config" / "filterRules.json"
    FilterRules(allowed=("os",)).save(tmp_path)
    old = path.read_bytes()
    FilterRules(allowed=("shop",)).save(tmp_path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.unlink()
    for left in ("filterRules.json.bak", "filterRules.json.1.tmp"):  # of a version before
        (path.parent / left).write_bytes(old)
    assert FilterRules.load(tmp_path).allowed == ()


@pytest.mark.parametrize(
    ("name", "is_doubted"),
    [
        ("os", True),
        ("os.path", True),
        ("subprocess:run", True),
        ("numpy", True),
        ("rocketray", True),
        ("rocketray_demo.predicates", False),
        ("shop.filters", False),
        ("shop.os:system", False),
    ],
)
def test_modules_that_hold_no_predicates_are_doubted(name: str, is_doubted: bool) -> None:
    doubts = FilterRules(allowed=("shop", name)).doubts()
    assert len(doubts) == is_doubted
    assert all(f"--allow-predicates {name} lets every group run" in line for line in doubts)
