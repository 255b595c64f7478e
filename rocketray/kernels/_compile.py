"""The compilation of kernels.

A kernel is a function of this package whose annotations give the exact types of its machine code:
``int`` and ``bool``, the arrays below, and tuples of numbers as a result.
  - It is compiled for those types only, with the GIL released. The machine code is cached beside
    the source, or in Numba's cache folder if that is read-only.
  - Compilation happens in ``warm``, which shard processes and the filter call when they start, or
    on its first call: other processes, such as most commands, start sooner without.
  - An ``In`` array is declared read-only, which accepts writable ones too: a kernel exists once.
  - ``tests/oracles`` has a function of the same name and arguments in plain Python for each kernel.
    Tests compare the two.

Rules for kernels
  1. Numba checks no bounds: a kernel checks every length that comes from a file or the network.
  2. A cached kernel does not notice a change in another file. After editing ``intrinsics.py``,
     ``layout.py`` or a ``device`` function, delete ``__pycache__`` in this folder.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from rocketray.errors import UnsupportedPlatformError

__all__ = [
    "Bools",
    "Bytes",
    "Doubles",
    "InBytes",
    "InDoubles",
    "InInt32s",
    "InInt64Rows",
    "InInt64s",
    "Int32s",
    "Int64s",
    "OutBools",
    "OutBytes",
    "OutInt32s",
    "OutInt64Rows",
    "OutInt64s",
    "cgutils",
    "compile_all",
    "device",
    "intrinsic",
    "ir",
    "kernel",
    "types",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger(__name__)
_COMPILING = threading.RLock()
_KERNELS: dict[Any, Callable[[], None]] = {}
_COMPILERS: list[Any] = []  # a dispatcher that ends takes the machine code that it compiled along


def _numba(byte_order: str) -> Any:
    """Import Numba, without which no part of rocketray works that handles messages."""
    if byte_order != "little":  # kernels read several bytes as one number, lowest byte first
        raise UnsupportedPlatformError(
            "rocketray needs a little-endian processor, and this one is big-endian"
        )
    try:
        return import_module("numba")
    except ImportError as error:
        raise UnsupportedPlatformError(
            f"rocketray needs Numba, which cannot be imported: {error}; install the versions that "
            "rocketray requires, for example with: pip install --upgrade rocketray"
        ) from error


_NUMBA = _numba(sys.byteorder)
types: Any = _NUMBA.types
ir: Any = import_module("llvmlite.ir")
cgutils: Any = import_module("numba.core.cgutils")
intrinsic: Any = import_module("numba.extending").intrinsic


def _array(element: Any, dimensions: int = 1, *, readonly: bool = False) -> Any:
    return types.Array(element, dimensions, "C", readonly=readonly)


Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

InBytes = Annotated[Bytes, _array(types.uint8, readonly=True)]
InInt32s = Annotated[Int32s, _array(types.int32, readonly=True)]
InInt64s = Annotated[Int64s, _array(types.int64, readonly=True)]
InInt64Rows = Annotated[Int64s, _array(types.int64, 2, readonly=True)]
InDoubles = Annotated[Doubles, _array(types.float64, readonly=True)]
OutBytes = Annotated[Bytes, _array(types.uint8)]
OutBools = Annotated[Bools, _array(types.boolean)]
OutInt32s = Annotated[Int32s, _array(types.int32)]
OutInt64s = Annotated[Int64s, _array(types.int64)]
OutInt64Rows = Annotated[Int64s, _array(types.int64, 2)]

_SCALARS = {int: types.int64, bool: types.boolean, type(None): types.void}


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile *function* for the types of its annotations, on its first call or in ``warm``."""
    dispatcher = _dispatcher(function)
    # A dispatcher that may compile accepts no writable array for a read-only one. It looks whether
    # it may at the beginning of a call; where another thread has compiled it since, the call fails.
    dispatcher._can_compile = False  # noqa: SLF001 - Numba has no public way, here and below
    find_conversions = dispatcher._search_new_conversions  # noqa: SLF001

    def compile_first() -> None:
        with _COMPILING:
            if not dispatcher.signatures:
                for callee in _callees(dispatcher):
                    _KERNELS[callee]()
                hints = get_type_hints(function, include_extras=True)
                returns = _type(hints.pop("return"))
                compiling = _dispatcher(function)
                _COMPILERS.append(compiling)
                compiling.compile(returns(*map(_type, hints.values())))
                for compiled in compiling.overloads.values():
                    dispatcher.add_overload(compiled)

    def find_after_compiling(*arguments: Any) -> Any:
        compile_first()
        return find_conversions(*arguments)

    dispatcher._search_new_conversions = find_after_compiling  # noqa: SLF001 - asked before a call fails
    _KERNELS[dispatcher] = compile_first
    compiled: Callable[_P, _R] = dispatcher
    return compiled


def compile_all() -> None:
    """Compile every kernel of the modules imported so far."""
    for compile_first in list(_KERNELS.values()):
        compile_first()


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function that only kernels call; compiled into each of them."""
    # Not inlined: an array would be passed as seven arguments, in twice the time.
    inlined: Callable[..., Any] = _NUMBA.njit(nogil=True, forceinline=True)(function)
    return inlined


def _type(hint: Any) -> Any:
    """Return Numba's type for an annotation."""
    if get_origin(hint) is Annotated:
        return hint.__metadata__[0]
    if get_origin(hint) is tuple:
        return types.Tuple([_type(part) for part in get_args(hint)])
    return _SCALARS[hint]


def _dispatcher(function: Callable[..., Any]) -> Any:
    """Return *function* as Numba's dispatcher, not compiled yet."""
    try:
        return _NUMBA.njit(nogil=True, cache=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        _say_once()
        return _NUMBA.njit(nogil=True)(function)


def _callees(dispatcher: Any) -> Iterator[Any]:
    """Yield the kernels that a kernel or device function calls, itself or by a device function."""
    function = dispatcher.py_func
    for name in function.__code__.co_names:
        callee = function.__globals__.get(name)
        if hasattr(callee, "py_func"):
            yield from [callee] if callee in _KERNELS else _callees(callee)


@cache
def _say_once() -> None:
    _LOG.warning(
        "kernels are compiled again in every process, which takes about 15 s: neither the "
        "package's folder nor the user's cache folder can be written; set NUMBA_CACHE_DIR to one "
        "that can"
    )
