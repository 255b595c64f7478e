"""What holds for every test: one seed, which is printed, and nothing that leaks from the source tree.

Seeds: a run draws one number, prints it, and gives it to all random tests, hypothesis' among them;
``--seed`` repeats it. It is the same with and without the variable CI, and no database of examples
changes what a run does. A seed that once failed is in ``data/failed_seeds.json`` under the name of
its test, which runs with it, too, from then on. What fails is shown as it was found: to shrink a
history of hundreds of steps takes longer than a test may; ``--shrink`` does it.

The run's directory is a temporary one. Ray gives its workers the directory of the process that
started it, so from the project's root they would import the source tree instead of the package
that is under test; and what a command leaves in its directory would be left in the project.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import hypothesis.core
import pytest
from hypothesis.internal.conjecture import providers
from support.harness import open_nodes
from support.harness.amounts import ALL, fifth, tenth
from support.harness.heap import Heap
from support.harness.jvm import QUICK_JAVA, spark_options
from support.harness.not_tested import NotTested
from support.harness.open_files import close_unreachable_files
from support.harness.patience import extended, patience, settle_patience
from support.harness.processor_time import ProcessorTime
from support.harness.shared_work import compile_tests, share_tables
from support.harness.spread import FilesAndShared, mixed

from rocketray.messaging.producers import producer_options

SETTINGS = {
    "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
    "SPARK_SUBMIT_OPTS": spark_options(Path(sys.prefix)),
    "OPENBLAS_NUM_THREADS": "1",  # NumPy would start threads in each process, and wait actively
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only, also where a test imports ray first
}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
# Where workers and child processes find support.*, before what a person has there.
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
).strip(os.pathsep)
# What tests ask by HTTP is on this machine. Programs keep the proxy that the environment may name.
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
settle_patience()
# Ray ends a start whose raylet is not there in 30 s.
os.environ.setdefault("RAY_raylet_start_wait_time_s", str(int(patience(30))))
# Nothing is wrong with a machine on which a send waits longer than a producer does by default.
producer_options.SEND_TIMEOUT_S = extended(producer_options.SEND_TIMEOUT_S)

# A slow machine is no failure (tests have a timeout of their own). Hypothesis would take fixed
# seeds where CI is set, and examples of earlier runs from its database elsewhere.
PROFILE = hypothesis.settings(deadline=None, print_blob=True, derandomize=False, database=None)
FOUND = [phase for phase in hypothesis.Phase if phase.name not in ("shrink", "explain")]
hypothesis.settings.register_profile("rocketray", PROFILE, phases=FOUND, report_multiple_bugs=False)
hypothesis.settings.register_profile("rocketray-shrink", PROFILE)
hypothesis.settings.load_profile("rocketray")
# It would also draw constants that it finds in our modules, those that are imported by then, so a
# seed would find something else in a run of one test than in a run of all.
vars(providers)["is_local_module_file"] = lambda _path: False

HEAP = Heap()
TESTS = Path(__file__).parent
IN_MEMORY = ("unit", "property", "crash", "support")
MEMORY = Path("/dev/shm")
MEMORY_MIN_BYTES = 4 << 30  # the tests of four processes, each with some logs of 8 MB
_ENTRIES: dict[str, list[Any]] = json.loads((TESTS / "data/failed_seeds.json").read_text())
_REASONED = [one for listed in _ENTRIES.values() for one in listed if isinstance(one, dict)]
FIFTH = {one["seed"] for one in _REASONED if "fifth" in one}
"""The seeds for which a fifth is enough in ``make test``; their entries say why."""
SLOW = {one["seed"] for one in _REASONED if "slow" in one}
"""The seeds that ``make test-slow`` repeats only; their entries say why."""
_SEEDS = {
    test: [one["seed"] if isinstance(one, dict) else one for one in listed]
    for test, listed in _ENTRIES.items()
}
FAILED_SEEDS: dict[str, list[int]] = {
    test: [seed for seed in seeds if ALL or seed not in SLOW] for test, seeds in _SEEDS.items()
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=random.randrange(2**32), help="of all random tests of this run"
    )
    parser.addoption(
        "--shrink", action="store_true", help="look for the smallest example of what fails"
    )


def pytest_report_header(config: pytest.Config) -> str:
    hashes = os.environ.get("PYTHONHASHSEED", "random")
    return f"rocketray: --seed={config.getoption('--seed')} PYTHONHASHSEED={hashes}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if terminalreporter.stats.get("failed"):
        seed = config.getoption("--seed")
        terminalreporter.write_line(
            f"Random tests: repeat with --seed={seed}, and --shrink; a seed that fails goes to "
            "tests/data/failed_seeds.json, in the commit that fixes the bug."
        )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a process of the run, which would draw one of its own."""
    node.workerinput["seed"] = node.config.getoption("--seed")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        config.option.seed = config.workerinput["seed"]
    if config.getoption("--shrink"):
        hypothesis.settings.load_profile("rocketray-shrink")
    for name in FAILED_SEEDS:
        file, _, test = name.partition("::")
        if not (TESTS / file).is_file() or f"def {test}(" not in (TESTS / file).read_text():
            raise pytest.UsageError(f"data/failed_seeds.json: {name} is no test; rename it, too")
    config.pluginmanager.register(NotTested())
    config.pluginmanager.register(ProcessorTime())
    share_tables(config)
    if config.getoption("numprocesses", None):  # the process that starts the others
        compile_tests(config, TESTS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:  # pytest-timeout's limits are waits, too
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0] if marker else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(patience(limit_s)), append=False)
    if hasattr(config, "workerinput"):  # one of several processes
        items[:] = mixed(items)


def pytest_collection() -> None:
    """Look for no garbage among a million objects that are imported and collected, and stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt them from every later garbage collection."""
    HEAP.exempt_all()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool, bool]:
    """Shrink the heap behind the last test of a file, when nothing of it lives any more."""
    is_done = yield
    if nextitem is None or nextitem.path != item.path:
        HEAP.shrink()
    return is_done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail a file whose tests leave nodes open; an error of the last one's teardown says so."""
    yield
    if nextitem is None or nextitem.path != item.path:
        left = open_nodes.left_open()
        assert not left, f"{item.path.name} leaves nodes open, on {left}; write: with LocalNode(…)"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndShared | None:
    return FilesAndShared(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once more with each of the seeds that it failed with in the past."""
    file = metafunc.definition.path.relative_to(TESTS).as_posix()
    if failed := FAILED_SEEDS.get(f"{file}::{metafunc.definition.name}"):
        names = ["fresh", *map(str, failed)]
        metafunc.parametrize("seed", [None, *failed], ids=names, indirect=True)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run, or one that failed in the past."""
    found = getattr(request, "param", None)
    return int(request.config.getoption("--seed") if found is None else found)


@pytest.fixture
def amount(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """How much of a number of steps to do: all with most seeds that failed in the past, else fewer."""
    failed = request.node.callspec.params.get("seed") if hasattr(request.node, "callspec") else None
    if failed is None:
        return tenth
    return fifth if failed in FIFTH else int


@pytest.fixture(autouse=True)
def _hypothesis_seed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypothesis.core, "global_force_seed", seed)


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random numbers that ``--seed`` repeats; the report's header tells the seed of each run."""
    return random.Random(seed)


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with chdir(tmp_path_factory.mktemp("run")):
        yield


@pytest.fixture(scope="session")
def memory() -> Iterator[Path | None]:
    """A directory in memory, or None where too little is free."""
    if not (MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_MIN_BYTES):
        yield None
    else:
        with tempfile.TemporaryDirectory(
            prefix="tests-", dir=MEMORY, ignore_cleanup_errors=True
        ) as directory:
            yield Path(directory)


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    memory: Path | None,
) -> Iterator[Path]:
    """A directory of this test: on the disk for tests with processes of their own, else in memory.

    To create, sync and remove files on a disk took a quarter of the time of the shards' tests. What
    a power failure leaves is tested on a disk of the tests' own (support/sim/sim_disk.py).
    """
    if memory is None or request.path.relative_to(TESTS).parts[0] not in IN_MEMORY:
        yield request.getfixturevalue("tmp_path")
        return
    failed, directory = request.session.testsfailed, Path(tempfile.mkdtemp(dir=memory))
    yield directory
    if request.session.testsfailed > failed:
        shutil.move(directory, tmp_path_factory.mktemp("failed"))  # to be looked at
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def _collected_file() -> Iterator[None]:
    """Collect what is garbage when the last test of a file has ended, so that its file is named."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect the garbage of a test in its teardown, so that it is named if something was left open.

    Begun first, so ended last. What lived through a collection meanwhile is left to the end of the
    file: to look at all objects after each test would take longer than most tests.
    """
    yield
    request.node.funcargs.clear()  # the values of its fixtures would outlive it
    gc.collect(1)
    close_unreachable_files()


@pytest.fixture(scope="session", autouse=True)
def _rendered_log_records() -> Iterator[None]:
    """Keep no arguments in log records: an error would hold the frames, and so the files, of its raise.

    pytest keeps all records of a test, and a model runs hundreds of nodes in one test.
    """
    make = logging.getLogRecordFactory()

    def rendered(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = make(*arguments, **more)
        record.msg, record.args = record.getMessage(), None
        return record

    logging.setLogRecordFactory(rendered)
    yield
    logging.setLogRecordFactory(make)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory for parts of a node, which leave their shared memory to the node."""
    from rocketray.runtime.files.runtime_lock import remove_runtime  # noqa: PLC0415 - few tests need it

    yield tmp_path
    remove_runtime(tmp_path)
