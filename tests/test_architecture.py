"""The shape of the house, read from the sources: suites, dead modules, banned calls, file sizes.

Each rule lists all places that break it, as ``path:line: what, and what to do instead``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.harness.house import GROUND, HOUSE, ROOMS
from support.harness.source_tree import (
    PACKAGES,
    ROOT,
    SourceFile,
    imports_of,
    package_files,
    source_file,
)
from support.harness.wall_time import wall_time_places

MAX_LINES = 500

PURE = ("rocketray.kernels", "rocketray.store", "rocketray.filters")
ENGINES = ("ray", "faust", "mode", "pyspark")
MAY_IMPORT_PYSPARK = ("rocketray.queries.spark", "pyspark_rocketray", "rocketray_demo")

STARTED_BY_NAME = {
    "rocketray.queries.spark.sink_service": "App.main, where there are sinks; hosts of them",
    "rocketray.__main__": "python -m rocketray",
    "rocketray.filters.consumer_filter": "a public name: the filters that bitmaps are made of",
}

BANNED_CALLS = {
    "print": "return the text, or write it in rocketray.cli",
    "eval": "compile_expression() or load_predicate(): no code from outside",
    "exec": "load_predicate(): no code from outside",
    "flight.FlightClient": "open_client(), which uses no proxy of the environment",
    "time.time": "the clock_ms argument",
    "time.time_ns": "the clock_ms argument",
    "datetime.now": "the clock_ms argument",
    "datetime.utcnow": "the clock_ms argument",
    "sys.exit": "raise an error of rocketray.errors; the command line makes exit codes",
}
BANNED_NAMES = {
    "os.environ": "an argument; the command line reads the environment",
    "os.getenv": "an argument; the command line reads the environment",
    "sys.argv": "an argument; the command line reads arguments",
}
BANNED_IMPORTS = {
    "pickle": "JSON or bytes with checked lengths: no code from outside",
    "cloudpickle": "an import path: no code from outside",
    "marshal": "bytes with checked lengths",
    "shelve": "rocketray.runtime.files.state_files",
    "urllib.request": "http.client, which uses no proxy of the environment",
}
# What a file may do all the same, and why. An entry that is not needed any more fails too.
ALLOWED = {
    (
        "rocketray/runtime/clock.py",
        "time.time_ns",
    ): "the clock that is handed to everything else",
    ("rocketray/runtime/ray_process/ray_access.py", "os.environ"): "where Ray looks for its token",
    (
        "rocketray/runtime/ray_process/ray_runtime.py",
        "os.environ",
    ): "what Ray reads when it is imported",
    (
        "rocketray/broker/fetching/flight_client.py",
        "flight.FlightClient",
    ): "it opens all connections to fetch services",
    ("rocketray/base/cluster.py", "os.environ"): "ROCKETRAY_CLUSTER means one thing everywhere",
    (
        "rocketray/base/settings_file.py",
        "os.environ",
    ): "ROCKETRAY_CONFIG means one thing everywhere",
    ("rocketray/base/data_directory.py", "os.environ"): "ROCKETRAY_DATA means one thing everywhere",
    ("rocketray_demo/run_directory.py", "datetime.now"): "a person finds a run by its hour",
    ("rocketray/base/environment.py", "os.environ"): "Ray and Spark are told things by it",
    ("rocketray/base/interpreter.py", "os.environ"): "Spark reads from it which Python to run",
    ("rocketray/queries/spark/warm_client.py", "sys.argv"): "it stands for Spark's Python",
    ("rocketray/queries/spark/warm_server.py", "sys.argv"): "it becomes what was asked for",
    ("rocketray/queries/spark/warm_server.py", "os.environ"): "the same",
}


def report(problems: Iterable[str]) -> None:
    found = sorted(set(problems))
    assert not found, "\n" + "\n".join(found)


def suite_of(module: str) -> str:
    """The suite of *module*: a part of rocketray, or a package beside it; else nothing."""
    package, _, rest = module.partition(".")
    if package == "rocketray":
        return rest.partition(".")[0]
    return package if package in PACKAGES else ""


def row_of(module: str) -> int | None:
    """The row of *module*'s suite; None for the root package, which may export from all."""
    suite = suite_of(module)
    return next((row for row, suites in enumerate(HOUSE) if suite in suites), None)


def below(prefixes: Iterable[str], module: str) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` for a chain of names, the last two names of a longer one; else nothing."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        names.append(node.id)
    return ".".join(reversed(names[:2]))


def banned_places(file: SourceFile) -> Iterator[tuple[int, str, str]]:
    """Line, banned name and replacement of everything in *file* that is banned outside cli."""
    for node in file.nodes:
        if isinstance(node, ast.Call) and dotted(node.func) in BANNED_CALLS:
            name = dotted(node.func)
            yield node.lineno, name, BANNED_CALLS[name]
        elif isinstance(node, ast.Attribute) and dotted(node) in BANNED_NAMES:
            name = dotted(node)
            yield node.lineno, name, BANNED_NAMES[name]
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "bare except", "the errors that can happen, or Exception"
    for module, line in imports_of(file):
        if module in BANNED_IMPORTS:
            yield line, f"import {module}", BANNED_IMPORTS[module]
        hidden = {name for name in (*BANNED_CALLS, *BANNED_NAMES) if "." in name}
        if module in hidden - {"datetime.now", "datetime.utcnow"}:
            yield line, module, "the module's name in full, so that this test sees its uses"


def all_banned() -> Iterator[tuple[SourceFile, int, str, str]]:
    for file in package_files():
        if not below(["rocketray.cli"], file.module):
            for line, name, replacement in banned_places(file):
                yield file, line, name, replacement


def test_every_module_belongs_to_a_suite() -> None:
    report(
        f"{file.where}: in no suite; name it in HOUSE of tests/support/harness/house.py"
        for file in package_files()
        if row_of(file.module) is None and file.module not in {"rocketray", "rocketray.__main__"}
    )


def test_imports_go_down_only() -> None:
    def problems() -> Iterator[str]:
        for file in package_files():
            own = row_of(file.module)
            for module, line in imports_of(file):
                other = row_of(module)
                if own is None or other is None or suite_of(file.module) == suite_of(module):
                    continue
                if other > own:
                    yield f"{file.where}:{line}: {module} stands above; turn the call around"
                elif other == own and suite_of(module) not in GROUND:
                    yield f"{file.where}:{line}: {module} stands beside; join them one row up"

    report(problems())


def room_of(module: str) -> tuple[str, str] | None:
    """Suite and room of *module*; None where the suite has no rooms."""
    parts = module.split(".")
    if parts[0] != "rocketray" or len(parts) < 3 or parts[1] not in ROOMS:
        return None
    is_room = (ROOT / "rocketray" / parts[1] / parts[2]).is_dir()
    return parts[1], parts[2] if is_room else ""


def test_every_room_has_its_place() -> None:
    rooms = {room_of(file.module) for file in package_files()} - {None}
    placed = {(suite, room) for suite, rows in ROOMS.items() for row in rows for room in row}
    assert rooms == placed


def test_imports_between_rooms_go_down_only() -> None:
    place = {
        (suite, room): row
        for suite, rows in ROOMS.items()
        for row, rooms in enumerate(rows)
        for room in rooms
    }

    def problems() -> Iterator[str]:
        for file in package_files():
            own = room_of(file.module)
            for module, line in imports_of(file):
                other = room_of(module)
                if own is None or other is None or own == other or own[0] != other[0]:
                    continue
                if place[other] >= place[own]:
                    yield f"{file.where}:{line}: {module} does not stand below; turn the call around"

    report(problems())


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checkers count: a reader follows them, too."""
    modules = {file.module: file for file in package_files() if not file.is_package}
    needs = {
        module: {other for other, _ in imports_of(file) if other in modules} - {module}
        for module, file in modules.items()
    }

    def free() -> set[str]:
        """Modules that need nothing of what is left, or that nothing of it needs."""
        needed = {other for others in needs.values() for other in others}
        return {one for one in needs if one not in needed or not needs[one] & needs.keys()}

    while found := free():
        for module in found:
            del needs[module]
    report(
        f"{modules[module].where}: in a circle with {', '.join(sorted(others & needs.keys()))}"
        for module, others in needs.items()
    )


def test_the_pure_parts_know_no_engine() -> None:
    report(
        f"{file.where}:{line}: {module} in a pure part; move the call to actors or topology"
        for file in package_files()
        if below(PURE, file.module) or suite_of(file.module) in GROUND
        for module, line in imports_of(file)
        if below(ENGINES, module)
    )


def test_pyspark_stays_in_the_spark_parts() -> None:
    report(
        f"{file.where}:{line}: {module}; move the call to rocketray.queries.spark"
        for file in package_files()
        if not below(MAY_IMPORT_PYSPARK, file.module)
        for module, line in imports_of(file)
        if below(["pyspark"], module)
    )


def loaded_by_name(file: SourceFile) -> Iterator[str]:
    """The modules beside *file* that it hands to ``import_module`` by their last name."""
    if 'import_module(f"{__package__}.' not in file.text:
        return
    package = file.module if file.is_package else file.module.rpartition(".")[0]
    for node in file.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{package}.{node.value}"


def test_no_module_is_dead() -> None:
    files = package_files()
    used = {module for file in files for module, _ in imports_of(file) if module != file.module}
    used |= {module for file in files for module in loaded_by_name(file)}
    used |= STARTED_BY_NAME.keys()
    text = "\n".join([*(file.text for file in files), (ROOT / "pyproject.toml").read_text()])
    report(
        f"{file.where}: nothing imports {file.module}; use it or delete it"
        for file in files
        if not file.is_package
        and file.module not in used
        and f'"{file.module}"' not in text
        and f'"{file.module}:' not in text
    )


def test_banned_calls() -> None:
    report(
        f"{file.where}:{line}: {name} is banned, use {replacement}"
        for file, line, name, replacement in all_banned()
        if (file.where, name) not in ALLOWED
    )


def test_no_exception_from_the_rules_is_left_over() -> None:
    found = {(file.where, name) for file, _, name, _ in all_banned()}
    report(f"{where}: {name} is allowed but not used" for where, name in ALLOWED.keys() - found)


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "import time\ntime.time()",
        "from time import time_ns\ntime_ns()",
        "import os\nx = os.environ['A']",
        "from urllib import request\nrequest.urlopen('http://node')",
        "from pyarrow import flight\nflight.FlightClient('grpc://node')",
        "from os import environ",
        "import pickle",
        "from pickle import loads",
        "import datetime\ndatetime.datetime.now()",
        "try:\n    pass\nexcept:\n    pass",
    ],
)
def test_each_ban_is_seen(source: str, tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(source)
    assert list(banned_places(SourceFile(path, "rocketray.x")))


def test_no_verdict_depends_on_the_seconds_of_a_shared_machine() -> None:
    report(
        f"{file.where}:{line}: {problem}"
        for file in map(source_file, (ROOT / "tests").rglob("*.py"))
        if file.module != "tests.support.harness.patience"
        for line, problem in wall_time_places(tuple(ast.walk(file.tree)))
    )


@pytest.mark.parametrize(
    "source",
    [
        "end = time.monotonic() + 60",
        "while monotonic() < (end := 60 + monotonic()):\n    pass",
        "assert time.monotonic() - begun < 5",
        "assert 5 >= perf_counter() - begun",
        "assert 0.1 <= time.time() - begun < 5",
        "assert time.monotonic() < begun + 60",
        "took_s = round(time.monotonic() - begun, 1)\nassert took_s < 5, took_s",
        "if (took_s := time.monotonic() - begun):\n    assert took_s <= 5",
        "gaps.append(time.perf_counter() - before)\nassert is_idle or max(gaps) < 3",
        "async def wait():\n    return monotonic() - begun\nassert asyncio.run(wait()) < 5",
    ],
)
def test_each_limit_of_seconds_is_seen(source: str) -> None:
    assert [*wall_time_places(tuple(ast.walk(ast.parse(source))))]


@pytest.mark.parametrize(
    "source",
    [
        "assert time.monotonic() - begun >= 0.1",
        "assert 0.1 <= time.monotonic() - begun",
        "assert time.process_time() - begun < 5",
        "deadline = begun + patience(60)",
        "said = f'{time.monotonic() - begun:.1f} s'",
    ],
)
def test_what_is_no_limit_of_seconds_is_let_be(source: str) -> None:
    assert not [*wall_time_places(tuple(ast.walk(ast.parse(source))))]


def test_every_file_says_what_it_is() -> None:
    def problems() -> Iterator[str]:
        for file in package_files():
            if not file.text.strip():
                continue
            if not ast.get_docstring(file.tree):
                yield f"{file.where}:1: no docstring; say what is true in this file"
            body = [node for node in file.tree.body if not isinstance(node, ast.Expr)]
            if body and "from __future__ import annotations" not in file.text:
                yield f"{file.where}:1: add 'from __future__ import annotations'"

    report(problems())


def test_no_file_has_two_nouns() -> None:
    paths = [file.path for file in package_files()]
    for folder in ("tests", "examples", "benchmarks"):
        paths += (ROOT / folder).rglob("*.py")
    sizes = {path: len(path.read_text().splitlines()) for path in paths}
    report(
        f"{path.relative_to(ROOT)}: {size} lines of at most {MAX_LINES}; what is the second noun?"
        for path, size in sizes.items()
        if size > MAX_LINES
    )
