"""The programs of a documentation page as modules, as if a reader had written and imported them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.harness.page_runner import blocks_of


def modules_of(page: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """Run the Python files of *page* in order; each finds the ones before it by their names."""
    modules = []
    for block in blocks_of(page):
        if not block.title.endswith(".py"):
            continue
        module = ModuleType(block.title.removesuffix(".py"))
        monkeypatch.setitem(sys.modules, module.__name__, module)  # where records find their types
        exec(compile(block.text, block.title, "exec"), vars(module))
        modules.append(module)
    return modules
