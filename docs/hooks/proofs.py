"""A hook of the documentation's build: the tables of the page of proofs are made from the tests.

A test, or by ``pytestmark`` a file of them, is marked with the claim that it proves:

    @pytest.mark.proves("durability", "A fork holds no lock of its parent")

and the line ``<!-- proofs: durability -->`` of the page becomes a table of such claims. Run as a
program, it prints the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[2]
_PAGE = "explanation/proofs.md"
_PLACE = re.compile(r"^<!-- proofs: ([\w-]+) -->$", re.MULTILINE)


class Proof(NamedTuple):
    """A test or a file of tests, with the claim of a section that it proves."""

    section: str
    claim: str
    test: str
    is_slow: bool


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page of proofs with its tables, and any other page as it is."""
    return with_tables(markdown) if page.file.src_uri == _PAGE else markdown


def with_tables(markdown: str) -> str:
    """Return *markdown* with a table in each place for one.

    Raises:
        ValueError: a place has no claim, or a claim no place.
    """
    found: dict[str, dict[str, list[Proof]]] = {}
    for proof in proofs():
        found.setdefault(proof.section, {}).setdefault(proof.claim, []).append(proof)
    if (places := set(_PLACE.findall(markdown))) != found.keys():
        raise ValueError(f"{_PAGE} and the marks of the tests differ: {places ^ found.keys()}")
    return _PLACE.sub(lambda place: _table(found[place[1]]), markdown)


def proofs() -> Iterator[Proof]:
    """Yield what the marks of all tests say, by the paths of the tests."""
    for file in sorted((_ROOT / "tests").rglob("test_*.py")):
        if "mark.proves" in (text := file.read_text()):
            yield from _proofs_of(str(file.relative_to(_ROOT)), ast.parse(text))


def _proofs_of(path: str, module: ast.Module) -> Iterator[Proof]:
    of_file = [
        mark
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in (node.value.elts if isinstance(node.value, ast.List) else [node.value])
    ]
    yield from _read(path, of_file, of_file)
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = node.decorator_list
            yield from _read(f"{path}::{node.name}", marks, [*of_file, *marks])


def _read(test: str, marks: Sequence[ast.expr], all_marks: Sequence[ast.expr]) -> Iterator[Proof]:
    is_slow = any(ast.unparse(mark) == "pytest.mark.slow" for mark in all_marks)
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves":
            section, claim = map(ast.literal_eval, mark.args)
            yield Proof(section, claim, test, is_slow)


def _table(claims: Mapping[str, Sequence[Proof]]) -> str:
    rows = [
        "| {} | {} |".format(claim.replace("|", r"\|"), ", ".join(map(_named, tests)))
        for claim, tests in claims.items()
    ]
    return "\n".join(["| claim | test |", "|---|---|", *rows])


def _named(proof: Proof) -> str:
    return f"`{proof.test}`" + (" in `make test-slow`" if proof.is_slow else "")


if __name__ == "__main__":
    print(with_tables((_ROOT / "docs" / _PAGE).read_text()))  # noqa: T201 - a program's output
