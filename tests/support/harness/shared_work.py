"""What the processes of a run share, so that each of them does not do it again.

- pytest rewrites the asserts of each test and compiles it, once for all runs. In the first run all
  processes would do so at the same time, with the same files. So it is done before they start.
- Hypothesis keeps its tables of characters in its directory, which would be below the run's.
"""

from __future__ import annotations

import compileall
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from hypothesis.configuration import set_hypothesis_home_dir

_PROCESSES = 2


def compile_tests(config: pytest.Config, directory: Path) -> None:
    """Compile what is below *directory*, unless that is done, in some processes."""
    if sys.dont_write_bytecode:
        return
    paths, children = sorted(directory.rglob("*.py")), []
    for number in range(_PROCESSES):
        if (child := os.fork()) == 0:
            try:
                _compile(config, paths[number::_PROCESSES])
            finally:
                os._exit(0)  # what failed fails again where it is imported
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _compile(config: pytest.Config, paths: Sequence[Path]) -> None:
    for path in paths:
        if not path.name.startswith("test_"):
            compileall.compile_file(path, quiet=2)
            continue
        cache = rewrite.get_cache_dir(path)
        compiled = cache / (path.stem + rewrite.PYC_TAIL)
        if rewrite.try_makedirs(cache) and rewrite._read_pyc(path, compiled) is None:
            source, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, compiled)


def share_tables(config: pytest.Config) -> None:
    """Keep Hypothesis' tables in pytest's cache."""
    if config.pluginmanager.hasplugin("cacheprovider") and config.cache is not None:
        set_hypothesis_home_dir(config.cache.mkdir("hypothesis"))
