"""What the tests of reading from other machines share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.files.paths import runtime_directory
from rocketray.runtime.files.private_files import make_private_directory


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """The home of a disk here, with a directory in shared memory, said to be on another machine."""
    runtime = runtime_directory(tmp_path)
    assert make_private_directory(runtime)
    yield Home(str(tmp_path), settle_identity(tmp_path), "elsewhere")
    shutil.rmtree(runtime)
