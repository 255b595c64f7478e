"""What holds for every test: seeds that are printed, and nothing that leaks from the source tree.

The run's directory is a temporary one. Ray gives its workers the directory of the process that
started it, so from the project's root they would import the source tree instead of the package
that is under test; and what a command leaves in its directory would be left in the project.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import hypothesis
import pytest

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only, also where a test imports ray first
    "RAY_AUTH_MODE": "disabled",  # the default writes a token into the home directory
    "PYTHONPATH": str(Path(__file__).parent),  # where workers and child processes find support.*
}
MANY_FILES = 500
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)

# A slow machine is no failure (tests have a timeout of their own); a failure prints its seed.
hypothesis.settings.register_profile("rocketray", deadline=None, print_blob=True)
hypothesis.settings.load_profile("rocketray")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=random.randrange(2**32), help="of the fixture rng")


def pytest_report_header(config: pytest.Config) -> str:
    return f"rocketray: --seed={config.getoption('--seed')}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that ``--seed`` repeats; the report's header tells the seed of each run."""
    return random.Random(request.config.getoption("--seed"))


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with chdir(tmp_path_factory.mktemp("run")):
        yield


@pytest.fixture(autouse=True)
def _few_files() -> Iterator[None]:
    """Close what only cycles hold open: Spark's tests need low descriptors (``check_callbacks``)."""
    yield
    with Path(os.devnull).open() as file:
        next_descriptor = file.fileno()
    if next_descriptor > MANY_FILES:
        gc.collect()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory for parts of a node, which leave their shared memory to the node."""
    from rocketray.actors.runtime_lock import remove_runtime  # noqa: PLC0415 - few tests need it

    yield tmp_path
    remove_runtime(tmp_path)
