from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.predicates import are_tagged, body_is_short

from rocketray.errors import PredicateError
from rocketray.filters.class_filter import (
    BATCH_COLUMNS,
    batch_columns,
    load_predicate,
    predicate,
    predicate_path,
)

PATH = "support.predicates:body_is_short"


def test_a_path_gives_its_function() -> None:
    assert load_predicate(PATH) is body_is_short
    assert load_predicate(predicate_path(body_is_short)) is body_is_short


@pytest.mark.parametrize(
    "path",
    [
        "",
        ":",
        "module",
        "module:",
        ":f",
        "a.b",
        "a:b:c",
        "a:b.c",
        ".a:f",
        "a..b:f",
        "a b:f",
        "1a:f",
        "os:system('x')",
        "../a:f",
        "a/b:f",
        "módulo:f",
        "a:f\n",
    ],
)
def test_a_malformed_path_is_refused_before_any_import(path: str) -> None:
    with pytest.raises(PredicateError, match="module:callable"):
        load_predicate(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no.such.module:f", "cannot be imported .*ModuleNotFoundError.*Python path"),
        ("support.predicates:absent", "has no 'absent'"),
        ("sys:path", "is a list"),
        ("decimal:Decimal", "is a class"),
        ("asyncio:sleep", "coroutine"),
        ("heapq:merge", "generator"),
    ],
)
def test_what_cannot_be_asked_is_refused(path: str, reason: str) -> None:
    with pytest.raises(PredicateError, match=reason):
        load_predicate(path)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import sys; sys.exit(3)", "SystemExit"),
    ],
)
def test_a_module_that_fails_to_import_is_named(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_predicates.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):  # a failure is not remembered: the module may be repaired
        with pytest.raises(PredicateError, match=reason):
            load_predicate("broken_predicates:f")


@pytest.mark.parametrize(
    ("allowed", "is_allowed"),
    [
        (["support"], True),
        (["support.predicates"], True),
        ([PATH], True),
        (["support.pred"], False),
        (["support.predicates:other"], False),
        (["support.predicates.deeper"], False),
        ([], False),
        ([""], False),
    ],
)
def test_the_list_of_allowed_modules_decides(allowed: list[str], is_allowed: bool) -> None:
    if is_allowed:
        assert load_predicate(PATH, allowed=allowed) is body_is_short
    else:
        with pytest.raises(PredicateError, match="not allowed"):
            load_predicate(PATH, allowed=allowed)


def test_a_module_that_is_not_allowed_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forbidden_predicates.py").write_text("def f(message): return True")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PredicateError):
        load_predicate("forbidden_predicates:f", allowed=["support"])
    assert "forbidden_predicates" not in sys.modules


def test_a_function_that_no_other_process_can_import_is_refused() -> None:
    def local(message: object) -> bool:
        return True

    class Holder:
        def method(self, message: object) -> bool:
            return True

    replaced = partial(body_is_short)
    for function in (local, lambda _: True, Holder().method, Holder.method, replaced):
        with pytest.raises(PredicateError, match="top level of an importable module"):
            predicate_path(function)


def test_a_function_of_a_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("__main__")
    exec("def f(message): return True", vars(script))  # what running a file does
    monkeypatch.setitem(sys.modules, "__main__", script)
    with pytest.raises(PredicateError, match="not in a script"):
        predicate_path(vars(script)["f"])
    script.__spec__ = sys.modules["support.predicates"].__spec__  # what python -m does
    assert predicate_path(vars(script)["f"]) == "support.predicates:f"


def test_a_name_that_was_replaced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.predicates.body_is_short", lambda _: True)
    with pytest.raises(PredicateError):
        predicate_path(body_is_short)


def test_a_function_that_is_marked_is_the_function_still() -> None:
    def f(_: object) -> bool:
        return True

    assert predicate(f) is f
    assert batch_columns(f) is None
    assert predicate(columns=["tags"])(f) is f
    assert batch_columns(f) is None
    assert predicate(batch=True)(f) is f
    assert batch_columns(f) == BATCH_COLUMNS
    assert predicate_path(are_tagged) == "support.predicates:are_tagged"


@pytest.mark.parametrize(
    "wrong", [5, int, asyncio.sleep], ids=["a number", "a type", "a coroutine"]
)
def test_only_a_plain_function_can_be_marked(wrong: Any) -> None:
    with pytest.raises(PredicateError):
        predicate(wrong)


IMPORTING = """
from functools import partial, wraps
from operator import itemgetter
from os import remove
from json import loads
from support.predicates import body_is_short

def own(message): return True

def _logged(function):
    @wraps(function)
    def wrapped(message): return function(message)
    return wrapped

decorated = _logged(own)
narrowed = partial(own)
of_another = partial(loads, cls=None)
getter = itemgetter(0)
"""


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that the operator allowed, and what it imports for its own use."""
    name = f"importing_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(IMPORTING)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("name", ["own", "decorated", "narrowed"])
def test_what_an_allowed_module_defines_is_a_predicate(importing: str, name: str) -> None:
    assert callable(load_predicate(f"{importing}:{name}", allowed=[importing]))


@pytest.mark.parametrize("name", ["remove", "loads", "body_is_short", "of_another", "getter"])
def test_what_an_allowed_module_only_imports_is_none(importing: str, name: str) -> None:
    path = f"{importing}:{name}"
    with pytest.raises(PredicateError, match=f"is defined in .*--allow-predicates {path}"):
        load_predicate(path, allowed=[importing])
    assert callable(load_predicate(path, allowed=[path]))
    assert callable(load_predicate(path))


def test_what_is_reexported_from_below_is_allowed_with_it() -> None:
    assert load_predicate(PATH, allowed=["support"]) is body_is_short
