from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.find import oracle_of
from support.harness.patience import patience
from support.nodes.stores import GOLDEN_STORE

from rocketray import kernels
from rocketray.errors import StreamError, UnsupportedPlatformError
from rocketray.kernels import _compile, hashing, pack, spans

HASH = """
import sys
import threading
import numpy as np
from rocketray.kernels import hashing, records, warm
if sys.argv[1] == "warm":
    warm()
counts = [int(one.is_compiled) for one in (hashing.hash_spans, records.find_property_strings)]
tag = np.frombuffer(b"TagA", np.uint8)
outs = [np.empty(1, np.int32) for _ in range(8)]

def call(out):
    hashing.hash_spans(tag, np.zeros(1, np.int64), np.full(1, 4), 0, out)

threads = [threading.Thread(target=call, args=[out]) for out in outs]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(*counts, len(hashing.hash_spans.made().overloads), {int(out[0]) for out in outs})
"""
LATER = """
import sys
import rocketray.actors.cluster.node, rocketray.topology.app.app
from rocketray.kernels._compile import _KERNELS
print(len(_KERNELS) > 30, [one for one in _KERNELS if one.is_compiled], "numba" in sys.modules)
"""
ONCE = """
import sys
from rocketray.kernels import compile_once
compile_once()
print("numba" in sys.modules)
"""
HIDE_NUMBA = "import sys; sys.modules['numba'] = None\n"
# Functions that sleep, or ring the machine's doorbells, have no equal in plain Python.
WITHOUT_ORACLE = {"load", "load_all", "publish", "ring", "ring_for"}
READ_BYTES = "readonly array(uint8, 1d, C)"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )


def all_kernels() -> dict[str, Any]:
    """Every kernel of the package, by its module and name; no function for kernels only."""
    for one in pkgutil.iter_modules(kernels.__path__):
        import_module(f"{kernels.__name__}.{one.name}")
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for value in _compile._KERNELS
        for module in [sys.modules[value.__module__]]
        for name, found in vars(module).items()
        if found is value and not name.startswith("_")
    }


@pytest.mark.parametrize(("how", "before"), [("warm", "1 1"), ("lazily", "0 0")])
def test_a_kernel_is_compiled_by_its_first_call_or_before(how: str, before: str) -> None:
    assert run(HASH, how).stdout.strip() == f"{before} 1 {{2598919}}"


def test_numba_is_imported_for_the_first_kernel_and_not_before() -> None:
    assert run(LATER).stdout.strip() == "True [] False"


def test_kernels_are_compiled_once_for_their_sources_and_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[None] = []
    monkeypatch.setattr(kernels, "_KEY_FILE", tmp_path / "all.key")
    monkeypatch.setattr(kernels, "warm", lambda: compiled.append(None))
    kernels.compile_once()
    kernels.compile_once()
    assert len(compiled) == 1
    monkeypatch.setattr(kernels, "version", lambda name: f"another {name}")
    kernels.compile_once()
    assert len(compiled) == 2
    monkeypatch.setattr(kernels, "_KEY_FILE", tmp_path / "absent" / "all.key")
    kernels.compile_once()  # as in a folder that cannot be written: each process does it
    assert len(compiled) == 3


@pytest.mark.parametrize("is_read_only", [False, True])
def test_kernels_that_another_user_compiled_are_not_in_the_cache_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_read_only: bool
) -> None:
    compiled: list[None] = []
    monkeypatch.setattr(kernels, "_KEY_FILE", tmp_path / "all.key")
    monkeypatch.setattr(kernels, "warm", lambda: compiled.append(None))
    kernels.compile_once()
    if is_read_only:  # the file system's rights do not bind root
        monkeypatch.setattr(kernels, "access", lambda *_: False)
    else:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    kernels.compile_once()
    assert len(compiled) == 2


def test_compiled_kernels_are_not_loaded_before_they_are_used() -> None:
    run(ONCE)
    assert run(ONCE).stdout.strip() == "False"


def test_a_writable_array_is_taken_for_a_read_only_one() -> None:
    assert spans.end_of_segment(np.arange(7), 100, 0) == 7


def test_without_numba_the_first_use_says_what_is_missing() -> None:
    done = run(HIDE_NUMBA + "from rocketray.kernels import warm\nwarm()")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "rocketray.errors.UnsupportedPlatformError: rocketray needs Numba, which"
    )
    assert "install" in last


def test_without_numba_a_command_says_so_in_one_line() -> None:
    command = f"from rocketray.cli import main\nmain(['store', 'verify', {str(GOLDEN_STORE)!r}])"
    done = run(HIDE_NUMBA + command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rocketray: rocketray needs Numba, which cannot be imported")
    assert done.stderr.count("\n") == 1


def test_a_big_endian_processor_is_refused() -> None:
    with pytest.raises(UnsupportedPlatformError, match="little-endian processor") as caught:
        _compile._numba("big")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, StreamError)


def test_every_kernel_has_an_oracle_of_the_same_arguments() -> None:
    compared = {
        name: kernel
        for name, kernel in all_kernels().items()
        if name.rpartition(".")[2] not in WITHOUT_ORACLE
    }
    assert len(compared) > 30
    for name, kernel in compared.items():
        ours, theirs = inspect.signature(kernel.py_func), inspect.signature(oracle_of(kernel))
        assert list(ours.parameters) == list(theirs.parameters), name
        assert ours.return_annotation == theirs.return_annotation, name


@pytest.mark.parametrize(
    ("kernel", "types"),
    [
        (hashing.separated_key_hashes, f"({READ_BYTES}, int64, array(int32, 1d, C)) -> int64"),
        (pack.number_ids, f"(array(uint8, 1d, C), {READ_BYTES}, int64) -> none"),
        (spans.sum_sizes, "(readonly array(int64, 1d, C)) -> UniTuple(int64 x 2)"),
        (spans.is_ascii, f"({READ_BYTES}, int64) -> bool"),
    ],
)
def test_a_kernel_is_compiled_for_the_types_of_its_annotations(kernel: Any, types: str) -> None:
    kernels.warm()
    (signature,) = kernel.made().nopython_signatures
    takes = ", ".join(map(str, signature.args))
    assert f"({takes}) -> {signature.return_type}" == types
