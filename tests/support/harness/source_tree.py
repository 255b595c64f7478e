"""The project's own files, parsed: what the tests of architecture, packaging and docs look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("rocketray", "rocketray_bench", "rocketray_demo", "pyspark_rocketray")


@dataclass(frozen=True)
class SourceFile:
    """One Python file: where it is, how it is imported, and what it says, which is read late."""

    path: Path
    module: str

    @cached_property
    def text(self) -> str:
        """The file's content."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """The content, parsed."""
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, which many tests walk."""
        return tuple(ast.walk(self.tree))

    @property
    def where(self) -> str:
        """The path from the project's root, as a person would name it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_package(self) -> bool:
        """Whether this is the ``__init__`` of a package."""
        return self.path.name == "__init__.py"


@cache
def package_files() -> tuple[SourceFile, ...]:
    """Every Python file of what is shipped, in the order of their paths."""
    paths = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return tuple(source_file(path) for path in paths)


def source_file(path: Path) -> SourceFile:
    """One Python file of the project."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(part for part in parts if part != "__init__")
    return SourceFile(path, module)


def forget_sources() -> None:
    """Release what was parsed: a million objects."""
    package_files.cache_clear()
    imports_of.cache_clear()


@cache
def imports_of(file: SourceFile) -> tuple[tuple[str, int], ...]:
    """Every module that *file* imports, wherever in it, absolute, with the line.

    ``from a import b`` yields both ``a`` and ``a.b``, since ``b`` may be a module.
    """
    return tuple(_imports(file))


def _imports(file: SourceFile) -> Iterator[tuple[str, int]]:
    for node in file.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(file, node)
            yield base, node.lineno
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def _absolute(file: SourceFile, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = file.module.split(".")
    up = node.level - 1 if file.is_package else node.level
    return ".".join([*package[: len(package) - up], *filter(None, [node.module])])
