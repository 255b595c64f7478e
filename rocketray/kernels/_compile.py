"""The compilation of kernels, and the fallback to their plain twins.

A kernel is declared with its types and its twin.
  - With Numba it is compiled for exactly those types, with the GIL released. The machine code is
    cached beside the source, or in Numba's cache folder if that is read-only.
  - Without Numba the twin takes its name.
  - Compilation happens when the module is imported, so no call has to wait for it.
  - Each kernel exists once: an input array is declared read-only, which accepts writable ones too.

Rules for kernels
  1. Numba checks no bounds: a kernel checks every length that comes from a file or the network.
  2. A cached kernel does not notice a change in another file. After editing ``intrinsics.py``,
     ``layout.py`` or a ``device`` function, delete ``__pycache__`` in this folder.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "BOOL",
    "INT",
    "INT_AND_BOOL",
    "IN_BYTES",
    "IN_DOUBLES",
    "IN_INT32S",
    "IN_INT64S",
    "IN_INT64_ROWS",
    "NOTHING",
    "OUT_BOOLS",
    "OUT_BYTES",
    "OUT_INT32S",
    "OUT_INT64S",
    "OUT_INT64_ROWS",
    "PLAIN",
    "TWO_INTS",
    "Bools",
    "Bytes",
    "Doubles",
    "Int32s",
    "Int64s",
    "cgutils",
    "device",
    "intrinsic",
    "ir",
    "kernel",
    "types",
]

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger(__name__)


def _numba() -> Any:
    # The only place that reads this variable; "1" forces the twins, for tests and comparisons.
    if os.environ.get("ROCKETRAY_PLAIN_KERNELS", "") == "1":
        return None
    if sys.byteorder != "little":
        return None  # kernels read several bytes as one native number, lowest byte first
    try:
        return import_module("numba")
    except ImportError:
        return None


def _unused(function: Callable[..., Any]) -> Callable[..., Any]:
    return function  # an intrinsic in a process that runs only twins: never called


_NUMBA = _numba()
PLAIN: bool = _NUMBA is None
types: Any = None if PLAIN else _NUMBA.types
ir: Any = None if PLAIN else import_module("llvmlite.ir")
cgutils: Any = None if PLAIN else import_module("numba.core.cgutils")
intrinsic: Any = _unused if PLAIN else import_module("numba.extending").intrinsic


def _array(element: str, dimensions: int = 1, *, readonly: bool = False) -> Any:
    if PLAIN:
        return None
    return types.Array(getattr(types, element), dimensions, "C", readonly=readonly)


TWO_INTS: Any = None if PLAIN else types.UniTuple(types.int64, 2)
INT_AND_BOOL: Any = None if PLAIN else types.Tuple((types.int64, types.boolean))
BOOL: Any = None if PLAIN else types.boolean
INT: Any = None if PLAIN else types.int64
NOTHING: Any = None if PLAIN else types.void
IN_BYTES = _array("uint8", readonly=True)
IN_INT32S = _array("int32", readonly=True)
IN_INT64S = _array("int64", readonly=True)
IN_INT64_ROWS = _array("int64", 2, readonly=True)
IN_DOUBLES = _array("float64", readonly=True)
OUT_BYTES = _array("uint8")
OUT_BOOLS = _array("boolean")
OUT_INT32S = _array("int32")
OUT_INT64S = _array("int64")
OUT_INT64_ROWS = _array("int64", 2)


def kernel(
    twin: Callable[_P, _R], returns: Any, takes: tuple[Any, ...]
) -> Callable[[Callable[..., Any]], Callable[_P, _R]]:
    """Declare the kernel whose plain *twin* has the same arguments and the same result."""

    def declare(function: Callable[..., Any]) -> Callable[_P, _R]:
        compiled: Callable[_P, _R] = twin if PLAIN else _compile(function, returns(*takes))
        return compiled

    return declare


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function that only kernels call; compiled into each of them."""
    if PLAIN:
        return function
    # Not inlined: an array would be passed as seven arguments, in twice the time.
    inlined: Callable[..., Any] = _NUMBA.njit(nogil=True, forceinline=True)(function)
    return inlined


def _compile(function: Callable[..., Any], signature: Any) -> Any:
    try:
        return _NUMBA.njit(signature, nogil=True, cache=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        _say_once()
        return _NUMBA.njit(signature, nogil=True)(function)


@cache
def _say_once() -> None:
    _LOG.warning(
        "kernels are compiled anew in every process, which takes about 15 s: neither the package's "
        "folder nor the user's cache folder can be written; set NUMBA_CACHE_DIR to one that can"
    )
