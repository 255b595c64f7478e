"""The API reference has every public name."""

from __future__ import annotations

import inspect
import re
import runpy
from importlib import import_module
from typing import Any

import pytest
from support.harness.source_tree import ROOT

import rocketray
from rocketray import testing

PAGES = [path.read_text() for path in sorted((ROOT / "docs/reference/api").glob("*.md"))]


@pytest.mark.proves("documentation", "The API reference has every public name")
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


@pytest.mark.proves("documentation", "The API reference has every public name")
def test_the_index_names_every_entry() -> None:
    index = (ROOT / "docs/reference/api/index.md").read_text()
    entries = re.findall(r"^::: [\w.]+\.(\w+)$", "\n".join(PAGES), re.MULTILINE)
    assert [name for name in entries if f"`{name}`" not in index] == []


def shown(entry: str) -> Any:
    """The object of the entry ``package.module.Name``."""
    module, _, name = entry.rpartition(".")
    return getattr(import_module(module), name)


def has_member(kind: type, name: str) -> bool:
    """Return whether objects of *kind* have it: a method, or an attribute that their code sets."""
    if hasattr(kind, name):
        return True
    codes = [inspect.getsource(each) for each in kind.__mro__ if each.__module__[:9] == "rocketray"]
    return any(re.search(rf"\bself\.{name}\b", code) for code in codes)


@pytest.mark.parametrize(
    ("entry", "members"),
    re.findall(
        r"^::: ([\w.]+)\n    options:\n      members: \[(.*)\]$", "\n".join(PAGES), re.MULTILINE
    ),
)
def test_every_member_that_an_entry_shows_is_there(entry: str, members: str) -> None:
    kind = shown(entry)
    assert [name for name in members.split(", ") if name and not has_member(kind, name)] == []


def functions_shown(kind: type, members: str | None) -> dict[str, Any]:
    """The methods and properties of ours that the page shows of a class: those listed, or all."""
    names = dir(kind) if members is None else members.split(", ")
    found = {name: getattr(kind, name) for name in names if name[:1] != "_" and hasattr(kind, name)}
    return {
        name: value
        for name, value in found.items()
        if inspect.isfunction(code := inspect.unwrap(getattr(value, "fget", value)))
        and code.__module__.startswith("rocketray")
    }


@pytest.mark.parametrize(
    ("entry", "options"),
    re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", "\n".join(PAGES), re.MULTILINE),
)
def test_what_an_entry_shows_has_a_docstring(entry: str, options: str) -> None:
    """Ruff does not ask for them: elsewhere a name may say all."""
    values = {entry: shown(entry)}
    members = re.search(r"members: \[(.*)\]", options)
    if isinstance(kind := values[entry], type) and "members: false" not in options:
        values |= functions_shown(kind, members and members[1])
    assert [name for name, value in values.items() if not inspect.getdoc(value)] == []


def test_roles_of_sphinx_become_links_to_entries_of_the_page() -> None:
    hook = runpy.run_path(str(ROOT / "docs/hooks/roles.py"))["on_page_content"]
    page = """<h3 id="rocketray.Producer"></h3><h4 id="rocketray.Producer.send"></h4>
        :meth:<code>flush</code> :class:<code>~rocketray.Client</code> :meth:<code>send</code>
        <h4 id="rocketray.Producer.flush"></h4> <h3 id="rocketray.AsyncProducer"></h3>
        :meth:<code>flush</code> :meth:<code>Producer.send</code>"""
    first, client, own, other, send = re.findall(r"\S*<code>.*?</code>(?:</a>)?", hook(page))
    assert first == 'href="#rocketray.Producer.flush"><code>flush</code></a>'
    assert client == "<code>Client</code>"
    assert own == "<code>send</code>"
    assert other == first  # it is inherited, and shown there alone
    assert send == 'href="#rocketray.Producer.send"><code>Producer.send</code></a>'
