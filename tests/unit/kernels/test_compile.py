from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from oracles.find import oracle_of

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
counts = [len(one.overloads) for one in (hashing.hash_spans, records.find_property_strings)]
tag = np.frombuffer(b"TagA", np.uint8)
outs = [np.empty(1, np.int32) for _ in range(8)]

def call(out):
    hashing.hash_spans(tag, np.zeros(1, np.int64), np.full(1, 4), 0, out)

threads = [threading.Thread(target=call, args=[out]) for out in outs]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(*counts, len(hashing.hash_spans.overloads), {int(out[0]) for out in outs})
"""
OVERTAKEN = """
import numpy as np
from rocketray.kernels import _compile, spans

kernel = spans.end_of_segment
typeof = kernel.typeof_pyval

def overtaken(argument):
    if not kernel.signatures:
        print("overtaken")
        _compile._KERNELS[kernel]()
    return typeof(argument)

kernel.typeof_pyval = overtaken
writable = np.arange(7)  # for a read-only argument, so Numba has to convert it
print(kernel(writable, 100, 0))
"""
HIDE_NUMBA = "import sys; sys.modules['numba'] = None\n"
# Functions that sleep, or ring the machine's doorbells, have no equal in plain Python.
WITHOUT_ORACLE = {"load", "publish", "ring", "ring_for"}
READ_BYTES = "readonly array(uint8, 1d, C)"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def all_kernels() -> dict[str, Any]:
    """Every kernel of the package, by its module and name; no function for kernels only."""
    found = {}
    for one in pkgutil.iter_modules(kernels.__path__):
        module = import_module(f"{kernels.__name__}.{one.name}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if "forceinline" not in getattr(value, "targetoptions", {"forceinline": True}):
                found[f"{one.name}.{name}"] = value
    return found


@pytest.mark.parametrize(("how", "before"), [("warm", "1 1"), ("lazily", "0 0")])
def test_a_kernel_is_compiled_by_its_first_call_or_before(how: str, before: str) -> None:
    assert run(HASH, how).stdout.strip() == f"{before} 1 {{2598919}}"


def test_a_call_that_another_thread_overtakes_with_the_compilation_is_carried_out() -> None:
    """Numba looks at a call's arguments between its first look at the kernel and its last."""
    printed = run(OVERTAKEN)
    assert printed.stdout.split() == ["overtaken", "7"], printed.stderr


def test_no_module_compiles_a_kernel_when_it_is_imported() -> None:
    program = (
        "import rocketray.actors.cluster.node, rocketray.topology.app.app\n"
        "from rocketray.kernels._compile import _KERNELS\n"
        "print(len(_KERNELS) > 30, [str(one) for one in _KERNELS if one.signatures])"
    )
    assert run(program).stdout.strip() == "True []"


def test_without_numba_the_import_says_what_is_missing() -> None:
    done = run(HIDE_NUMBA + "import rocketray\nrocketray.Producer")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "rocketray.errors.UnsupportedPlatformError: rocketray needs Numba, which"
    )
    assert "install" in last


def test_without_numba_a_command_says_so_in_one_line(tmp_path: Path) -> None:
    command = f"from rocketray.cli import main\nmain(['store', 'verify', {str(tmp_path)!r}])"
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
    (signature,) = kernel.nopython_signatures
    takes = ", ".join(map(str, signature.args))
    assert f"({takes}) -> {signature.return_type}" == types
