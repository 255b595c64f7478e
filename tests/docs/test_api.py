"""The API reference has every public name."""

from __future__ import annotations

import re

from support.harness.source_tree import ROOT

import rocketray
from rocketray import testing

PAGES = [path.read_text() for path in sorted((ROOT / "docs/reference/api").glob("*.md"))]


def test_every_public_name_has_its_entry() -> None:
    entries = re.findall(r"^::: ([\w.]+)$", "\n".join(PAGES), re.MULTILINE)
    names = [f"rocketray.{name}" for name in rocketray.__all__ if not name.startswith("__")]
    names += [f"rocketray.testing.{name}" for name in testing.__all__]
    elsewhere = {"rocketray.StreamError", "rocketray.ray_data", "rocketray.spark"}  # see below
    assert set(names) - elsewhere <= set(entries)
    last = {entry.rpartition(".")[2] for entry in entries}
    of_spark = {*rocketray.spark.__all__, *rocketray.spark.exactly_once.__all__} - {"exactly_once"}
    assert {*rocketray.ray_data.__all__, *of_spark} <= last
    assert len(entries) == len(set(entries))


def test_the_index_names_every_entry() -> None:
    index = (ROOT / "docs/reference/api/index.md").read_text()
    entries = re.findall(r"^::: [\w.]+\.(\w+)$", "\n".join(PAGES), re.MULTILINE)
    assert [name for name in entries if f"`{name}`" not in index] == []
